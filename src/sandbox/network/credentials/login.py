"""One credential entry: the tokens in the person's file, the copy of the file for inside, and renewals.

The person's file is authoritative. It is read again whenever it has changed, so a renewal by another sandbox or by the
person's own program is seen at once; and it is read again under a lock before it is changed.

A sandbox with credentials loads this when it starts. Most people have few of the files, so what reads them is loaded
when there is one.
"""

from __future__ import annotations

import os

from sandbox.errors import ConfigError, Message
from sandbox.network.credentials import credential_store
from sandbox.network.credentials.token import CredentialToken
from sandbox.network.secrets.field_paths import has_wildcard, host_in, keys_of, matches, written
from sandbox.network.secrets.stored_key import place
from sandbox.policy.hosts import HostSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from sandbox.config.model import Credential, CredentialField
    from sandbox.network.credentials.formats import Leaf
    from sandbox.network.secrets.field_paths import Keys

MOST = 1024 * 1024  # bytes of a credential file
_SIGNIFICANT = 20  # characters; a shorter string of unknown meaning is hidden, but traffic is not searched for it
Signature = tuple[int, int, int]


class Login:
    """Safe to use from one thread at a time."""

    def __init__(
        self,
        name: str,
        entry: Credential,
        key: bytes,
        cover: Callable[[str], None] | None = None,
        project: str | None = None,
    ) -> None:
        self.name, self.entry, self._key, self._cover = name, entry, key, cover
        self.path = f"credentials.{name}"
        self.file = os.path.abspath(os.path.expanduser(entry.file)) if entry.file else None
        # A login made inside is used in its own project only, until the person shares it: a tenant can log in with its
        # own account, which would then see what other projects' agents send.
        self.kept_as = credential_store.kept_as(name, project)
        self.store = os.path.join(place(), f"{self.kept_as}.{entry.format}")
        self.shared = os.path.join(place(), f"{name}.{entry.format}")
        self.exchanges = self.running = 0  # requests to the token endpoint: all so far, and those not answered yet
        self._tokens: dict[tuple[Keys, int], CredentialToken] = {}
        self._more: dict[str, CredentialToken] = {}  # of logins made inside, by placeholder
        self.hidden: dict[str, bytes] = {}  # other strings of the file that look like secrets, with placeholders
        self._inside: dict[tuple[Keys, int], str] = {}
        self._text = ""
        self._seen: tuple[str, Signature] | None = None
        self.version = 0
        self.problem: str | None = None  # why the file could not be read
        self.endpoint = HostSet(entry.refresh.hosts, f"{self.path}.refresh.hosts", near_secret=True)
        for field in entry.tokens.values():
            if "{host}" not in "".join(field.hosts):
                HostSet(field.hosts, f"{self.path}.fields", near_secret=True)
        for placeholder, kept in {
            **credential_store.more_tokens(name),
            **credential_store.more_tokens(self.kept_as),
        }.items():
            self._remember(placeholder, str(kept.get("value")), [str(one) for one in _listed(kept.get("hosts"))])
        self.load()

    # -- the file

    def source(self) -> str | None:
        """The file that tokens come from: a login made inside this project, else one shared with all projects, else the
        person's own."""
        if self.entry.file is None:
            return None
        return next((one for one in (self.store, self.shared) if os.path.exists(one)), self.file)

    def replaces_own(self) -> bool:
        """Whether a login made inside is used although the person has one: a tenant may have made it with its own
        account."""
        return self.file is not None and self.source() != self.file and os.path.exists(self.file)

    def is_elsewhere(self) -> bool:
        """Whether there is no login here, but one that was made inside another project."""
        if self.entry.file is None or os.path.exists(self.source() or ""):
            return False
        return credential_store.other_projects(self.name, self.entry.format)

    def load(self) -> None:
        """Reads the file when it has changed. While it cannot be read, for example because it is being written, what
        was known stays."""
        source = self.source()
        if source is None:
            return
        try:
            if self._seen == (source, _signature(os.stat(source))):
                return
            with open(source, "rb") as file:
                seen = source, _signature(os.fstat(file.fileno()))
                data = file.read(MOST + 1)
        except (FileNotFoundError, NotADirectoryError):
            if self._seen is not None:
                self._seen, self._text, self._inside = None, "", {}
                for token in self._tokens.values():
                    token.gone()
                self.version += 1
            return
        except OSError as problem:
            self.problem = Message("cannot read {file!r}: {reason}", file=source, reason=problem.strerror)
            return
        from sandbox.network.credentials.formats import UnreadableCredentials, leaves

        try:
            text = data.decode() if len(data) <= MOST else "\0"
            self._take(text, leaves(text, self.entry.format))
        except (UnicodeDecodeError, UnreadableCredentials):
            self.problem = Message(
                "{file!r} is not {format}, so programs inside have no login", file=source, format=self.entry.format
            )
            return
        self.problem, self._seen = None, seen

    def readable(self) -> bool:
        """Whether the file is there and could be read."""
        return self._seen is not None

    def _take(self, text: str, found: list[Leaf]) -> None:
        from sandbox.network.credentials.visible_strings import has_no_token, may_be_seen

        inside: dict[tuple[Keys, int], str] = {}
        here: set[tuple[Keys, int]] = set()
        for leaf in found:
            where = leaf.keys, leaf.number
            field = self._field(leaf.keys)
            if field is not None and not has_no_token(leaf.value, leaf.keys[-1], field[1].kind):
                token, instead = self._token(leaf, *field)
                here.add(where)
                inside[where] = instead
                self._tokens[where] = token
            elif field is None and not may_be_seen(leaf.keys, leaf.value, self.entry.keep):
                inside[where] = self._hidden(leaf)
        for where, token in self._tokens.items():
            if where not in here:
                token.gone()
        self._text, self._inside = text, inside
        self.version += 1

    def _field(self, keys: Keys) -> tuple[str, CredentialField] | None:
        return next(((path, field) for path, field in self.entry.tokens.items() if matches(path, keys)), None)

    def _token(self, leaf: Leaf, path: str, field: CredentialField) -> tuple[CredentialToken, str]:
        """The token that a string of the file is or contains, and that string with its placeholder."""
        from sandbox.network.credentials.visible_strings import parted

        host = host_in(path, leaf.keys)
        value, before, after = leaf.value, "", ""
        if (url := parted(leaf.value)) is not None:
            before, value, after, host = url
        hosts = [one.replace("{host}", host or "") for one in field.hosts if host or "{host}" not in one]
        where = leaf.keys, leaf.number
        token = self._tokens.get(where) or self._new_token(where, field, hosts)
        token.has(value, self._key)
        return token, before + token.placeholder.decode() + after

    def _new_token(self, where: tuple[Keys, int], field: CredentialField, hosts: list[str]) -> CredentialToken:
        path = written(where[0]) + (f"#{where[1]}" if where[1] else "")
        setting = f"{self.path}.fields.{path}"
        try:
            return CredentialToken(f"{self.name}.{path}", self._label(path), field.kind, hosts, field.places, setting)
        except ConfigError:  # text in the user's file that is not a host: its token goes nowhere
            return CredentialToken(f"{self.name}.{path}", self._label(path), field.kind, [], field.places, setting)

    def _label(self, path: str) -> str:
        return f"{self.name}\0{path}"

    def _hidden(self, leaf: Leaf) -> str:
        from sandbox.network.credentials.token_shapes import shaped

        path = f"{written(leaf.keys)}#{leaf.number}"
        placeholder = shaped(leaf.value, self._key, self._label(f"hidden\0{path}"))
        if len(leaf.value) >= _SIGNIFICANT and " " not in leaf.value and leaf.value.isascii():
            self.hidden[leaf.value] = placeholder.encode()
        return placeholder

    def inside(self) -> str | None:
        """The file for tenants; None when there is none. Raises ConfigError when it cannot be made."""
        if not self.readable():
            return None
        from sandbox.network.credentials.formats import UnreadableCredentials, changed

        try:
            return changed(self._text, self.entry.format, self._inside, comments=False)
        except UnreadableCredentials:
            raise ConfigError("the file cannot be written with placeholders", path=f"{self.path}.file") from None

    # -- its tokens

    def tokens(self) -> Iterator[CredentialToken]:
        """Every token that ever was in the file, and those of logins made inside."""
        yield from list(self._tokens.values())
        yield from list(self._more.values())

    def of_kind(self, kind: str) -> CredentialToken | None:
        """The token of one kind, where a file holds one login."""
        for path, field in self.entry.tokens.items():
            if field.kind == kind and not has_wildcard(path):
                where = keys_of(path), 0
                if where not in self._tokens:
                    self._tokens[where] = self._new_token(where, field, field.hosts)
                return self._tokens[where]
        return None

    def extra(self, value: str, host: str) -> str:
        """A token from an answer of the token endpoint at `host` that belongs to no field of the file. It may go where
        the entry's other tokens may. Returns its placeholder."""
        import hmac

        from sandbox.network.credentials.token_shapes import shaped

        digest = hmac.digest(self._key, value.encode("utf-8", "surrogatepass"), "sha256").hex()
        placeholder = shaped(value, self._key, self._label(f"answer\0{digest}"))
        fields = [field for field in self.entry.tokens.values() if field.kind != "refresh"]
        hosts = list(dict.fromkeys(one.replace("{host}", host) for field in fields for one in field.hosts))
        self._remember(placeholder, value, hosts)
        return placeholder

    def _remember(self, placeholder: str, value: str, hosts: list[str]) -> None:
        path = f"{self.path}.fields"
        token = CredentialToken(f"{self.name} (from a login inside)", "", "key", hosts, ("header",), path)
        token.has(value, self._key)
        token.placeholders = [placeholder.encode()]
        self._more[placeholder] = token
        self.version += 1

    def more(self, placeholder: str) -> CredentialToken:
        """The token for which `extra` returned this placeholder."""
        return self._more[placeholder]

    # -- renewal

    def only_in_memory(self, new: Mapping[str, str]) -> None:
        """Takes the tokens of an answer (by kind) when they cannot be written to the file."""
        for kind, value in new.items():
            if (token := self.of_kind(kind)) is not None:
                token.has(value, self._key)
        self.version += 1

    def renewed(self, sent: str | None, new: Mapping[str, str], answer: Mapping[str, Any]) -> None:
        """Writes the tokens of an answer (`new`, by kind) to the file they belong to. Call it under the lock.

        `sent`: the refresh token that was sent for them; None for a login made inside. Raises OSError,
        UnreadableCredentials."""
        from sandbox.network.credentials.formats import changed
        from sandbox.network.credentials.renewals import around, newer_there

        target = self._target(sent)
        try:
            with open(target, encoding="utf-8") as file:
                text = file.read(MOST)
        except FileNotFoundError:
            text = ""
        if sent is not None and newer_there(self.entry, text, sent, answer):
            self._seen = None
            return self.load()
        change: dict[tuple[Keys, int], Any] = {}
        for path, field in self.entry.tokens.items():
            if field.kind in new and not has_wildcard(path):
                change[keys_of(path), 0] = new[field.kind]
        change |= around(self.entry, answer)
        credential_store.save(
            target, changed(text, self.entry.format, change), self._cover if target == self.file else None
        )
        self._seen = None
        self.load()

    def _target(self, sent: str | None) -> str:
        if sent is None:
            return self.file if self.entry.save_login and self.file else self.store
        return self.source() or self.store


def _signature(now: os.stat_result) -> Signature:
    """A value that differs when a file has changed."""
    return now.st_ino, now.st_size, now.st_mtime_ns


def _listed(data: object) -> list[object]:
    return data if isinstance(data, list) else []
