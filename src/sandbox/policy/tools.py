"""Which tools an agent may call.

    Write                     the tool, whatever its input        Bash(git:*)             commands that begin with `git`
    Write(*.md), Edit(src/**) on matching paths                   Bash(git:diff, git:log) `git diff …` and `git log …`
    WebFetch(domain:x.org)    for that host                       Bash(npm test)          exactly this command
    mcp__github__*, *         names by pattern

A shell line is allowed only if *every* command in it is, and refused if *any* of them is disallowed.
"""

from __future__ import annotations

import posixpath

from sandbox.config.patterns import Patterns
from sandbox.config.variables import glob
from sandbox.errors import Message, message_of
from sandbox.policy.decision import Decision
from sandbox.policy.shell import SimpleCommand, Unclear, commands
from sandbox.policy.wrappers import programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.config.model import Tools

SHELL = ("Bash", "Shell", "PowerShell")
WRITERS = ("Write", "Edit")
_VARIANTS = {"MultiEdit": "Edit", "NotebookEdit": "Edit"}  # rules for Edit apply to these too
_LOWER_VARIANTS = {variant.lower(): general.lower() for variant, general in _VARIANTS.items()}
NETWORKERS = ("WebFetch", "WebSearch")
_PATH_KEYS = ("file_path", "notebook_path", "path")

# Shell commands that neither change files nor use the network. A mistake here cannot open anything: the list only
# decides whether the sandbox gets a read-only project and no network.
READERS = frozenset((
    "ls", "cat", "head", "tail", "grep", "rg", "find", "fd", "wc", "pwd", "echo", "which", "tree", "stat", "file",
    "diff", "sort", "uniq", "cut", "jq", "date", "true", "test", "git diff", "git log", "git status", "git show",
    "git blame", "git grep", "git ls-files", "git rev-parse", "git branch",
))  # fmt: skip


class ToolPattern:
    """One pattern: the tool's name and, for some, which inputs."""

    __slots__ = ("text", "name", "arguments")

    def __init__(self, text: str) -> None:
        self.text = text
        name, parenthesis, rest = text.strip().partition("(")
        if not name or (parenthesis and not rest.endswith(")")) or ")" in name:
            raise ValueError(
                Message("{text!r} is not a tool pattern such as Write, Edit(src/**) or Bash(git:*)", text=text)
            )
        self.name = name.strip()
        listed = rest[:-1].split(",") if _is_shell(self.name) else [rest[:-1]]
        self.arguments = [one.strip() for one in listed if one.strip()] if parenthesis else []
        if parenthesis and not self.arguments:
            raise ValueError(Message("{text!r} has nothing between its parentheses", text=text))
        if self.arguments in (["*"], ["**"], [":*"]):
            self.arguments = []

    def names(self, tool: str, *, loosely: bool) -> bool:
        """Whether it names `tool`; `loosely` (for refusing) ignores case."""
        if loosely:
            general = _LOWER_VARIANTS.get(tool.lower())
            return self.name.lower() == general or glob(self.name.lower(), tool.lower())
        return (tool in _VARIANTS and self.name == _VARIANTS[tool]) or glob(self.name, tool)


class ToolGuard:
    """The tool rules of one agent: the config's and the agent file's. Both must allow a call."""

    def __init__(
        self,
        tools: Tools,
        *,
        root: str,
        allowed: Sequence[str] | None = None,
        disallowed: Sequence[str] = (),
    ) -> None:
        self.root = root
        enforced = tools.enforce_agent_permissions
        self.allowed = [[ToolPattern(text) for text in tools.allowed]]
        if enforced and allowed is not None:
            self.allowed.append([ToolPattern(text) for text in allowed])
        self.disallowed = [ToolPattern(text) for text in (*tools.disallowed, *(disallowed if enforced else ()))]

    def check(self, tool: str, input: Mapping[str, object] | None = None) -> Decision:
        """Whether `tool` may be called with `input`."""
        given = input or {}
        about = any(one.arguments and one.names(tool, loosely=True) for one in self.disallowed)
        if _is_shell(tool) and (about or self._restricted(tool)):
            return self._check_shell(tool, str(given.get("command", "")))
        for pattern in self.disallowed:
            if pattern.names(tool, loosely=True) and self._fits(pattern, given, strict=False):
                return _disallowed(pattern)
        for allowed in self.allowed:
            if not any(one.names(tool, loosely=False) and self._fits(one, given, strict=True) for one in allowed):
                return Decision(
                    False,
                    "tools.allowed",
                    "The tool is not allowed; allowed: {permitted}",
                    permitted=_listed(allowed),
                )
        return Decision(True, "tools.allowed", "The tool is allowed")

    def refuses(self, tool: str, given: Mapping[str, object]) -> bool:
        """Whether a disallowing pattern matches this call."""
        return self.check(tool, given).rule == "tools.disallowed"

    def may_use(self, tool: str) -> bool:
        """Whether `tool` can be used at all, with some input."""
        if any(one.names(tool, loosely=True) and not one.arguments for one in self.disallowed):
            return False
        return all(any(one.names(tool, loosely=False) for one in allowed) for allowed in self.allowed)

    def named(self, start: str) -> bool:
        """Whether a list allows a tool of that name explicitly, not only by `*`."""
        return any(one.name.startswith(start) for allowed in self.allowed for one in allowed)

    def only_reads(self, tool: str) -> bool:
        """Whether some list limits the shell `tool` to commands that only read."""
        for allowed in self.allowed:
            mine = [one for one in allowed if one.names(tool, loosely=False)]
            if all(one.arguments and all(_reads(argument) for argument in one.arguments) for one in mine):
                return True
        return False

    def _restricted(self, tool: str) -> bool:
        """Whether some list allows this shell only for certain commands."""
        return any(
            not any(one.names(tool, loosely=False) and not one.arguments for one in allowed) for allowed in self.allowed
        )

    def _check_shell(self, tool: str, line: str) -> Decision:
        for pattern in self.disallowed:
            if pattern.names(tool, loosely=True) and not pattern.arguments:
                return _disallowed(pattern)
        try:
            found = commands(line)
            refused = self._disallowed(tool, found)
        except Unclear as problem:
            return Decision(
                False, "tools.shell", "The command cannot be checked: {problem}", problem=message_of(problem)
            )
        if refused is not None:
            return Decision(False, "tools.disallowed", "The command is disallowed: {pattern}", pattern=refused.text)
        for allowed in self.allowed:
            mine = [one for one in allowed if one.names(tool, loosely=False)]
            if any(not one.arguments for one in mine):
                continue
            why = self._refused(found, mine)
            if why is not None:
                return Decision(
                    False, "tools.allowed", "{why}; allowed: {permitted}", why=why, permitted=_listed(allowed)
                )
        return Decision(True, "tools.allowed", "Every command is allowed")

    def _disallowed(self, tool: str, found: list[SimpleCommand]) -> ToolPattern | None:
        """The pattern that disallows a command of the line, or one that it runs in turn. Raises Unclear."""
        patterns = [one for one in self.disallowed if one.names(tool, loosely=True)]
        if not patterns:
            return None
        for words in (words for command in found for words in programs(command)):
            for pattern in patterns:
                if any(_may_begin(words, argument) for argument in pattern.arguments):
                    return pattern
        return None

    def _refused(self, found: list[SimpleCommand], patterns: list[ToolPattern]) -> str | None:
        """Why the line is not covered by `patterns`; None when it is."""
        if not patterns or not found:
            return Message("The command is not allowed")
        for command in found:
            if command.values:
                return Message("A command with variables set for it could run other programs")
            if not any(_begins(command.words, arg) for one in patterns for arg in one.arguments):
                shown = " ".join(word or "…" for word in command.words)
                return Message("The command is not allowed: {command}", command=shown)
            for target in command.writes:
                if target is None or not self.check("Write", {"file_path": target}):
                    return Message("The command writes to a file: {file}", file=target or "…")
        return None

    def _fits(self, pattern: ToolPattern, given: Mapping[str, object], *, strict: bool) -> bool:
        """Whether the pattern matches the input. `strict`, for allowing: it must match all of it."""
        if not pattern.arguments:
            return True
        argument = pattern.arguments[0]
        if argument.startswith("domain:"):
            url, host = str(given.get("url", "")), argument.removeprefix("domain:").lower()
            return (not strict and _ambiguous(url)) or _host_matches(url, host)
        paths = [given[key] for key in _PATH_KEYS if key in given]
        if paths:
            if not strict:
                return any(not isinstance(path, str) or self._path_may_fit(path, argument) for path in paths)
            return all(isinstance(path, str) and self._path_fits(path, argument) for path in paths)
        values = [value for value in given.values() if isinstance(value, str)]
        matches = [glob(argument, value) for value in values]
        return (all(matches) and bool(matches)) if strict else any(matches)

    def _path_fits(self, path: str, argument: str) -> bool:
        absolute = posixpath.normpath(posixpath.join(self.root, path))
        if not absolute.startswith(f"{self.root.rstrip('/')}/"):
            return False
        below = absolute[len(self.root.rstrip("/")) + 1 :]
        return _matches(below, argument.removeprefix("/") if argument.count("/") > 1 else argument)

    def _path_may_fit(self, path: str, argument: str) -> bool:
        """For refusing: the pattern may be meant from the project on or, as in `Read(/etc/**)`, from `/` on."""
        absolute = posixpath.normpath(posixpath.join(self.root, path)).lstrip("/")
        return self._path_fits(path, argument) or _matches(
            absolute, f"/{argument.lstrip('/')}" if "/" in argument else argument
        )


def _matches(path: str, argument: str) -> bool:
    names, pattern = path.split("/"), Patterns([argument])
    return any(pattern.match("/".join(names[:end]), end < len(names)) for end in range(1, len(names) + 1))


def _is_shell(tool: str) -> bool:
    return tool.lower() in [one.lower() for one in SHELL]


def _begins(words: list[str | None], argument: str) -> bool:
    """Whether `git:*`, `git:diff`, `git diff:*` or `npm test` certainly matches the command."""
    if not words:
        return False
    wanted = _wanted(argument)
    if _split(argument)[1]:
        return len(words) >= len(wanted) > 0 and words[: len(wanted)] == wanted
    if "*" in argument:
        return (
            all(word is not None for word in words[: len(wanted)])
            and glob(argument, " ".join(word or "" for word in words))
            and glob(wanted[0], words[0] or "")
        )
    return words == wanted


def _may_begin(words: list[str | None], argument: str) -> bool:
    """Whether the pattern may match the command. This is for refusing, so a word that is not literal may be any word,
    only the last name of a program's path counts, and options may come before a subcommand (`git -C . push`).
    """
    wanted = _wanted(argument)
    if not words or not wanted or not _may_be((words[0] or "").rsplit("/", 1)[-1], wanted[0]):
        return False
    return _follows(words[1:], wanted[1:])


def _follows(words: list[str | None], wanted: list[str]) -> bool:
    """Whether `words` may begin with `wanted`, after options with or without a value."""
    starts = [0]
    at = 0
    while at < len(words) and (words[at] is None or (words[at] or "").startswith("-")):
        starts += [at + 1, at + 2]
        at += 1 if at + 1 < len(words) and (words[at + 1] or "-").startswith("-") else 2
    return any(
        len(words) - start >= len(wanted) and all(map(_may_be, words[start : start + len(wanted)], wanted))
        for start in starts
    )


def _may_be(word: str | None, wanted: str) -> bool:
    return word is None or glob(wanted, word)


def _split(argument: str) -> tuple[str, str, str]:
    """`git:diff` and `git diff:*` at their colon. Any other colon is part of a word: `npm run a:b`."""
    if argument.endswith(":*"):
        return argument[:-2], ":", "*"
    head, colon, rest = argument.partition(":")
    return (head, colon, rest) if colon and not any(sign.isspace() for sign in head) else (argument, "", "")


def _wanted(argument: str) -> list[str]:
    """The words that a shell pattern begins with."""
    head, colon, rest = _split(argument)
    if not colon:
        return argument.split()
    return head.split() + ([] if rest in ("*", "") else rest.removesuffix("*").split())


def _reads(argument: str) -> bool:
    """Whether a shell pattern covers only commands that read."""
    head, _, rest = _split(argument)
    words = [*head.split(), *rest.removesuffix("*").split()]
    return any(" ".join(words[:length]) in READERS for length in (1, 2))


def _ambiguous(url: str) -> bool:
    """Whether programs may disagree about which host this is."""
    scheme, separator, rest = url.partition("://")
    authority = rest.split("/", 1)[0].split("?", 1)[0].split("#", 1)[0]
    odd = any(sign in "\\@%" or not " " < sign < "\x7f" for sign in authority)
    return not separator or not scheme.isalnum() or not authority or odd


def _host_matches(url: str, wanted: str) -> bool:
    authority = url.partition("://")[2].split("/", 1)[0].split("?", 1)[0].split("#", 1)[0]
    if "\\" in url or "@" in authority:
        return False  # programs disagree about which host this is
    host = authority.lower().rsplit(":", 1)[0].rstrip(".")
    return host == wanted or (wanted.startswith("*.") and host.endswith(wanted[1:]))


def _listed(patterns: list[ToolPattern]) -> str:
    return ", ".join(one.text for one in patterns) or Message("none")


def project(guard: ToolGuard) -> tuple[bool, bool]:
    """What an agent's tools mean for its sandbox: (project read-only, no network).

    A shell counts only if a list names it. An agent that is allowed everything *but* Write and Edit is meant to read
    only, so its shell cannot write either.
    """
    shell = any(guard.may_use(tool) and guard.named(tool) and not guard.only_reads(tool) for tool in SHELL)
    writes = shell or any(guard.may_use(tool) for tool in WRITERS)
    networks = shell or any(guard.may_use(tool) for tool in NETWORKERS) or guard.named("mcp__")
    return not writes, not networks


def _disallowed(pattern: ToolPattern) -> Decision:
    return Decision(False, "tools.disallowed", "The tool is disallowed: {pattern}", pattern=pattern.text)
