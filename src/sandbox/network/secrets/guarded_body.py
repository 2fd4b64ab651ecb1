"""A request's body that is searched before it is sent on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import Denied
from sandbox.network.http.body import Body
from sandbox.network.http.body_memory import Allowance
from sandbox.network.secrets.placeholder_search import Finder

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from sandbox.network.http.compression import Decompressor


class Guarded(Body):
    """A body that raises Denied instead of passing on a forbidden word.

    `inspect` reads ahead before anything is sent, so that no part of a refused request leaves. It stops at the end of
    the body, after `READ_AHEAD` bytes (fewer when the sandbox's allowance is spent) or, when the length is not
    declared, once the sender has paused for `PATIENCE` seconds (it may be waiting for a response). Later bytes are
    inspected before they are passed on: the connection is cut before the whole word has left.
    """

    READ_AHEAD = 2**20
    PATIENCE = 1.0

    def __init__(
        self,
        source: Body,
        words: Iterable[bytes],
        inflate: Decompressor | None,
        refusal: Callable[[bytes], Denied],
        allowance: Allowance | None = None,
        look: Callable[[bytes], None] | None = None,
    ) -> None:
        self._source, self._inflate, self._refusal = source, inflate, refusal
        self._finder = Finder(words)
        self._look = look  # raises Denied for anything else that must not leave
        self._held = bytearray()
        self._allowance = allowance or Allowance()
        self._kept = self._allowance.keep(0)
        self._reading: asyncio.Task[bytes] | None = None
        self._ended = False
        self.length = source.length

    async def inspect(self) -> None:
        """Reads ahead. Raises Denied, also for a body that is not compressed as it claims."""
        import asyncio  # not above: this module is loaded when a sandbox with secrets starts

        declared = self.length is not None
        while not self._ended and len(self._held) < self.READ_AHEAD and not self._allowance.spent:
            if declared:
                await self._more()
                continue
            self._reading = self._reading or asyncio.ensure_future(self._source.read())
            try:
                done, _ = await asyncio.wait({self._reading}, timeout=self.PATIENCE)
            except asyncio.CancelledError:
                self._reading.cancel()
                raise
            if not done:
                return
            await self._more()

    async def read(self) -> bytes:
        while True:
            ready = len(self._held) if self._ended else len(self._held) - self._finder.pending()
            if ready > 0:
                piece = bytes(self._held[:ready])
                del self._held[:ready]
                self._kept.add(-ready)
                return piece
            if self._ended:
                return b""
            await self._more()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._source.close()

    async def _more(self) -> None:
        contents: Iterable[bytes]
        reading, self._reading = self._reading, None
        piece = await (reading or self._source.read())
        if piece:
            self._held += piece
            self._kept.add(len(piece))
            contents = self._inflate.feed(piece) if self._inflate else (piece,)
        else:
            self._ended = True
            self.trailers = self._source.trailers
            contents = (b"".join(b"\n%s: %s" % pair for pair in self.trailers),)
        try:
            if self._ended and self._inflate:
                self._inflate.finish()
            for content in contents:
                if self._look is not None:
                    self._look(content)
                seen = self._finder.feed(content)
                if seen is not None:
                    raise self._refusal(seen)
        except Denied:
            self._held.clear()
            raise
