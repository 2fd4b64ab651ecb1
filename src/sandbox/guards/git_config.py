"""Reads git's configuration files as git reads them, and says which settings cannot make git run anything.

Many settings make git run a program, and every release adds some, so they are not listed here. `harmless` is the
opposite list: what `init`, `clone`, `remote`, `branch`, `submodule` and `worktree` write, and a few matters of taste.
Every setting that is not on it is assumed to be able to run something.

Text is latin-1 throughout: one character for each byte, as git sees them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Entry = tuple[str, str | None]  # `section.subsection.key`, value; None for a key without `=`

MOST = 1 << 20  # bytes of a configuration that is read; no person's is larger
SPACE = " \t\n\r"  # what git treats as space
ALPHA = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
KEY = ALPHA | frozenset("0123456789-")
ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}

# Their values are flags, numbers, and names of branches or methods: none is a program, a path or an address.
_FLAGS = """
    core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.ignorecase core.precomposeunicode
    core.symlinks core.sharedrepository core.autocrlf core.eol core.safecrlf core.sparsecheckout core.sparsecheckoutcone
    core.quotepath core.abbrev core.compression core.bigfilethreshold core.untrackedcache core.preloadindex
    core.trustctime core.checkstat core.splitindex core.commitgraph core.multipackindex core.longpaths
    core.whitespace core.commentchar core.warnambiguousrefs
    extensions.objectformat extensions.compatobjectformat extensions.worktreeconfig extensions.partialclone
    extensions.refstorage extensions.noop extensions.preciousobjects extensions.relativeworktrees
    user.name user.email author.name author.email committer.name committer.email
    init.defaultbranch pull.rebase pull.ff push.default push.autosetupremote push.followtags fetch.prune fetch.prunetags
    merge.ff merge.conflictstyle merge.renames rebase.autostash rebase.autosquash rebase.updaterefs rerere.enabled
    color.ui diff.renames diff.algorithm diff.mnemonicprefix diff.colormoved status.short status.branch
    status.showuntrackedfiles log.date gc.auto gc.autopacklimit gc.autodetach submodule.active submodule.recurse
    checkout.defaultremote branch.autosetupmerge branch.autosetuprebase branch.sort tag.sort versionsort.suffix
    lfs.repositoryformatversion index.version index.threads index.sparse index.skiphash pack.threads
    feature.manyfiles feature.experimental receive.denynonfastforwards receive.denydeletes receive.denycurrentbranch
    maintenance.auto maintenance.strategy fetch.parallel fetch.writecommitgraph fetch.fsckobjects transfer.fsckobjects
    rerere.autoupdate rebase.missingcommitscheck commit.verbose commit.cleanup diff.submodule diff.context
    status.submodulesummary log.decorate http.postbuffer http.version i18n.commitencoding gc.pruneexpire gc.reflogexpire
"""
HARMLESS = frozenset(_FLAGS.split())
HARMLESS_BELOW = {  # by section and key; the subsection between them is a name
    "remote": (
        *("fetch", "push", "prune", "prunetags", "tagopt", "mirror", "promisor"),
        *("partialclonefilter", "skipdefaultupdate", "followremotehead", "gh-resolved"),
    ),
    "branch": (
        *("merge", "rebase", "description"),
        *("vscode-merge-base", "gh-merge-base", "github-pr-owner-number"),  # notes of VS Code and GitHub's programs
    ),
    "submodule": ("active", "branch", "ignore", "shallow", "fetchrecursesubmodules"),
    "advice": (),
}
# With or without a subsection. (Where git expects a remote's name, an address will do.)
ADDRESSES = frozenset(
    ("remote.url", "remote.pushurl", "submodule.url", "branch.remote", "branch.pushremote", "remote.pushdefault")
)
SCHEMES = ("https://", "http://", "ssh://", "git://", "file://")
UPDATES = frozenset(("checkout", "rebase", "merge", "none"))  # `submodule.*.update`: else `!` and a command


class UnreadableConfig(ValueError):
    """git would not accept this as a configuration, or we cannot be sure how it would read it."""


def digest(entry: Entry) -> str:
    """Identifies a setting without showing it: some have passwords."""
    from sandbox.audit import chain  # hashes without OpenSSL, which takes too long to import

    name, value = entry
    return chain.digest(f"{name}\0{'=' if value is not None else ''}{value or ''}".encode("latin-1"))


def parse(data: bytes) -> list[Entry]:
    """Every setting, in order. Raises UnreadableConfig."""
    if len(data) > MOST or b"\0" in data:
        raise UnreadableConfig("too large, or not text")
    text = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").decode("latin-1")
    if not text.endswith("\n"):
        text += "\n"
    return _Reader(text).read()


class _Reader:
    """git's `git_parse_source`, step by step."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.section = ""

    def read(self) -> list[Entry]:
        found: list[Entry] = []
        text, end = self.text, len(self.text)
        while self.at < end:
            sign = text[self.at]
            if sign in SPACE:
                self.at += 1
            elif sign in "#;":
                self.at = text.index("\n", self.at)
            elif sign == "[":
                self.at += 1
                self.section = self.header()
            elif sign in ALPHA and self.section:
                found.append(self.setting())
            else:
                raise UnreadableConfig(f"{sign!r} where a setting begins")
        return found

    def next(self) -> str:
        """The next character. Raises UnreadableConfig at the end of the text."""
        if self.at >= len(self.text):
            raise UnreadableConfig("ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def header(self) -> str:
        """Reads `section]` or `section "subsection"]`; returns the prefix of its settings' names."""
        name = ""
        while (sign := self.next()) != "]":
            if sign in SPACE:
                return f"{name}.{self.subsection(sign)}"
            if sign not in KEY and sign != ".":
                raise UnreadableConfig("a section's name")
            name += sign.lower()
        return name

    def subsection(self, sign: str) -> str:
        while sign in SPACE:
            if sign == "\n":
                raise UnreadableConfig("a section's name")
            sign = self.next()
        if sign != '"':
            raise UnreadableConfig("a section's name")
        name = ""
        while (sign := self.next()) != '"':
            if sign == "\\":
                sign = self.next()
            if sign == "\n":
                raise UnreadableConfig("a section's name")
            name += sign
        if self.next() != "]":
            raise UnreadableConfig("a section's name")
        return name

    def setting(self) -> Entry:
        start = self.at
        while self.text[self.at] in KEY:
            self.at += 1
        name = f"{self.section}.{self.text[start : self.at].lower()}"
        while (sign := self.next()) in " \t":
            pass
        if sign == "\n":
            return name, None
        if sign != "=":
            raise UnreadableConfig("a setting without `=`")
        end = self.text.index("\n", self.at)
        line = self.text[self.at : end]
        if not any(special in line for special in '"\\#;\r'):  # nearly every line there is
            self.at = end + 1
            return name, line.strip(" \t").replace("\t", " ")
        return name, self.value()

    def value(self) -> str:
        out: list[str] = []
        quoted, spaces = False, 0
        while True:
            sign = self.next()
            if sign == "\n":
                if quoted:
                    raise UnreadableConfig("a quotation without its end")
                return "".join(out)
            if not quoted and sign in SPACE:
                spaces += bool(out)
                continue
            if not quoted and sign in "#;":
                self.at = self.text.index("\n", self.at)
                continue
            out.append(" " * spaces)
            spaces = 0
            if sign == "\\":
                sign = self.next()
                if sign == "\n":
                    continue
                if sign not in ESCAPES:
                    raise UnreadableConfig("an escape that git does not know")
                out.append(ESCAPES[sign])
            elif sign == '"':
                quoted = not quoted
            else:
                out.append(sign)


def split(name: str) -> tuple[str, str | None, str]:
    """Section, subsection if there is one, and key."""
    section, _, rest = name.partition(".")
    between, dot, key = rest.rpartition(".")
    return section, between if dot else None, key


def harmless(entry: Entry) -> bool:
    """Whether the setting makes git run nothing, read no other file and contact no other place. (The caller decides
    about `core.worktree`, because that depends on where it is.)"""
    name, value = entry
    section, below, key = split(name)
    if f"{section}.{key}" in ADDRESSES:
        return value is not None and harmless_address(value)
    if below is None:
        return name in HARMLESS or section == "advice"
    if section == "submodule" and key == "update":
        return value in UPDATES
    return key in HARMLESS_BELOW.get(section, ())


def harmless_address(url: str) -> bool:
    """Whether git fetches from this address without a helper program: not `ext::command`, nor any other `helper::`."""
    if url.startswith("-") or "\n" in url:
        return False
    if "://" in url:
        return url.lower().startswith(SCHEMES) and "::" not in url.partition("://")[0]
    return "::" not in url


def written(entries: Iterable[Entry]) -> bytes:
    """A configuration with these settings."""
    lines: list[str] = []
    before = None
    for name, value in entries:
        section, below, key = split(name)
        if (section, below) != before:
            quoted = "" if below is None else ' "' + below.replace("\\", "\\\\").replace('"', '\\"') + '"'
            lines.append(f"[{section}{quoted}]\n")
            before = section, below
        lines.append(f"\t{key}\n" if value is None else f"\t{key} = {_quoted(value)}\n")
    return "".join(lines).encode("latin-1")


def _quoted(value: str) -> str:
    for sign, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\b", "\\b")):
        value = value.replace(sign, escape)
    return f'"{value}"' if value != value.strip(SPACE) or any(sign in value for sign in "#;\r") else value
