"""`sandbox serve --token-file`: tokens that are managed elsewhere, such as in a Kubernetes Secret.

A line is a token, or `sha256:` and its hash in hexadecimal, then its scopes (`read,exec`; default: `*`), then a name
for people. Empty lines and lines that begin with # are ignored.
"""

from __future__ import annotations

import os
import re

from sandbox.errors import ConfigError, InvalidArgument, message_of
from sandbox.server import scopes
from sandbox.server.tokens import LONGEST, Token, hashed

HASHED = "sha256:"
SHORTEST = 32  # characters: a shorter token could be guessed
_HEX = re.compile(r"[0-9a-f]{64}")


class Given:
    """The tokens in a file, which is read again when it has changed. A missing file has no tokens."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError when the file cannot be used."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._tokens: list[Token] = []
        self._refresh()
        if self._seen is None:
            raise ConfigError("no such file", file=path)

    def tokens(self) -> list[Token]:
        """The tokens that are valid now: none while the file cannot be used, because it may have revoked some."""
        try:
            self._refresh()
        except (ConfigError, OSError):
            self._seen, self._tokens = None, []
        return self._tokens

    def _refresh(self) -> None:
        try:
            state = os.stat(self._path)  # follows links: Kubernetes updates a Secret by replacing a link
        except FileNotFoundError:
            self._seen, self._tokens = None, []
            return
        seen = (state.st_ino, state.st_mtime_ns, state.st_size)
        if seen != self._seen:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                self._tokens = [_read(line, number, self._path) for number, line in enumerate(file, 1) if _says(line)]
            self._seen = seen


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _read(line: str, number: int, file: str) -> Token:
    """The token on a line. Raises ConfigError, which never contains the token."""
    text, *more = line.split(None, 2)
    if text.startswith(HASHED):
        hash = text[len(HASHED) :].lower()
        if not _HEX.fullmatch(hash):
            raise ConfigError("a SHA-256 has 64 hexadecimal digits", file=file, line=number)
    elif not SHORTEST <= len(text) <= LONGEST:
        raise ConfigError(
            "a token must have {least} to {most} characters", least=SHORTEST, most=LONGEST, file=file, line=number
        )
    else:
        hash = hashed(text)
    try:
        verbs = scopes.read([more[0] if more else scopes.ALL])
    except InvalidArgument as problem:
        raise ConfigError(message_of(problem), file=file, line=number) from None
    name = more[1].strip() if len(more) > 1 else ""
    return Token(f"file-{hash[:8]}", name, hash, sorted(verbs), [], 0)
