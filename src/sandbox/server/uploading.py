"""Writes a file inside as its content arrives: never held in memory as a whole, never larger than the upload limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.rpc import messages as m
from sandbox.server.refusal import Refusal

if TYPE_CHECKING:
    from sandbox.server.reach import Reached
    from sandbox.server.server import Server

PIECE = 2**20


class Uploading:
    """One file that is created or replaced. `room` is how many more bytes all files of the request may have."""

    def __init__(self, server: Server, reached: Reached, path: str, mode: int = 0o644) -> None:
        self._server, self._reached = server, reached
        self._path, self._mode = path, mode
        self._at = 0
        self._waiting = bytearray()
        self.room = server.settings.upload_limit

    async def add(self, piece: bytes) -> None:
        """Takes the next piece. Raises Refusal when the upload is too large, and OSError."""
        self.room -= len(piece)
        if self.room < 0:
            raise too_large(self._server.settings.upload_limit)
        self._waiting += piece
        if len(self._waiting) >= PIECE:
            await self._write()

    async def end(self) -> None:
        """Writes what is left. Raises OSError."""
        if self._waiting or self._at == 0:
            await self._write()

    async def _write(self) -> None:
        piece, self._waiting = bytes(self._waiting), bytearray()
        offset, self._at = self._at, self._at + len(piece)
        asked = m.WriteFile(self._path, piece, self._mode, offset)
        await self._server.run(lambda: self._reached.call("write_file", asked))


def too_large(limit: int) -> Refusal:
    return Refusal(413, "too_large", f"an upload has at most {limit} bytes")
