"""Bearer tokens: shown once when made, stored as hashes in `~/.sandbox/server/tokens.json`.

A token is 32 random bytes, which nobody can guess, so one round of SHA-256 is enough: a slow hash would add nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from sandbox.config.atomic_write import write_whole
from sandbox.config.home import home
from sandbox.errors import InvalidArgument, NotFound
from sandbox.server.scopes import Access

if TYPE_CHECKING:
    from sandbox.server.token_file import Given

PREFIX = "sbx_"
_FILE = "tokens.json"
LONGEST = 128  # characters of a token that are hashed


class Token(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One token, as it is stored. `id` is for people; `hash` is the SHA-256 of the token.

    With a `surface`, only routes of that surface accept it; with a `holder`, only who has that certificate can use it.
    """

    id: str
    name: str
    hash: str
    scopes: list[str]
    sandboxes: list[str]
    created: int
    expires: int | None = None
    surface: str = ""
    holder: str = ""

    @property
    def access(self) -> Access:
        scopes, sandboxes = frozenset(self.scopes), frozenset(self.sandboxes)
        return Access(self.name or self.id, scopes, sandboxes, self.id, self.surface, self.holder)


class Tokens:
    """The tokens of this user. Reads the file again when it has changed, so that revoking takes effect at once."""

    def __init__(self, directory: str | None = None, *, given: Given | None = None) -> None:
        """`given` has tokens that are managed elsewhere."""
        self._given = given
        self._directory = directory or os.path.join(home(), "server")
        self._path = os.path.join(self._directory, _FILE)
        self._seen: tuple[int, int, int] | None = None
        self._tokens: list[Token] = []
        self._passing: list[Token] = []  # never stored: they end with this process, however it ends

    def new(
        self,
        scopes: frozenset[str],
        *,
        name: str = "",
        sandboxes: list[str] | None = None,
        lifetime: float | None = None,
        passing: bool = False,
        surface: str = "",
        holder: str = "",
    ) -> tuple[str, Token]:
        """Makes a token. Its text is returned here and stored nowhere. A `passing` token exists only in this object.

        Raises InvalidArgument, OSError.
        """
        if len(name) > 64 or not (name.isprintable()):
            raise InvalidArgument("a token's name may have at most 64 printable characters")
        if not all(sandboxes or []):
            raise InvalidArgument("a sandbox that a token is for has an id or a name")
        text = PREFIX + secrets.token_urlsafe(32)
        now = int(time.time())
        made = Token(
            secrets.token_hex(4), name, hashed(text), sorted(scopes), sandboxes or [], now,
            None if lifetime is None else now + int(lifetime), surface, holder,
        )  # fmt: skip
        if passing:
            self._passing = [one for one in self._passing if not _over(one)] + [made]
            return text, made
        with self._changing() as tokens:
            tokens.append(made)
        return text, made

    def valid(self) -> list[Token]:
        """The valid tokens in the file, oldest first."""
        self._refresh()
        return [one for one in self._tokens if not _over(one)]

    def revoke(self, id: str) -> Token:
        """Removes the token with that id or name. Raises NotFound."""
        with self._changing() as tokens:
            found = next((one for one in tokens if id in (one.id, one.name) and id), None)
            if found is None:
                raise NotFound("no token {id!r}; see `sandbox serve token list`", id=id)
            tokens.remove(found)
            return found

    def forget(self, id: str) -> None:
        """Invalidates a passing token. Idempotent."""
        self._passing = [one for one in self._passing if one.id != id]

    def bind(self, id: str, sandbox: str) -> None:
        """Adds `sandbox` to the sandboxes of a passing token."""
        for one in self._passing:
            if one.id == id:
                one.sandboxes = [*one.sandboxes, sandbox]

    def check(self, text: str) -> Access | None:
        """The token's access; None when it is not valid. Takes the same time for every wrong token."""
        self._refresh()
        given = hashed(text[:LONGEST])
        found: Token | None = None
        for one in self._all():
            if hmac.compare_digest(one.hash, given):
                found = one
        return None if found is None or _over(found) else found.access

    def access(self, id: str) -> Access | None:
        """The access of the valid token with that id; None when there is none."""
        self._refresh()
        return next((one.access for one in self._all() if one.id == id and not _over(one)), None)

    def lasts(self, access: Access) -> bool:
        """Whether the token that gave this access is still valid."""
        self._refresh()
        return any(one.id == access.token and not _over(one) for one in self._all())

    def _all(self) -> list[Token]:
        return [*self._tokens, *self._passing, *(self._given.tokens() if self._given is not None else ())]

    # -- the file

    def _refresh(self) -> None:
        try:
            state = os.stat(self._path)
        except FileNotFoundError:
            self._seen, self._tokens = None, []
            return
        seen = (state.st_ino, state.st_mtime_ns, state.st_size)
        if seen != self._seen:
            with open(self._path, "rb") as file:
                self._tokens = msgspec.json.decode(file.read(), type=list[Token])
            self._seen = seen

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        lock = os.open(os.path.join(self._directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._refresh()
            tokens = [one for one in self._tokens if not _over(one)]
            yield tokens
            write_whole(self._path, msgspec.json.format(msgspec.json.encode(tokens)).decode())
        finally:
            os.close(lock)


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _over(token: Token) -> bool:
    return token.expires is not None and token.expires <= time.time()
