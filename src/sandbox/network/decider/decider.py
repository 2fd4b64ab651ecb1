"""Lets an external decider judge requests: the `on_request` hook of `srt proxy`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sandbox.network.decider.connection import Unavailable
from sandbox.network.decider.messages import TooMuch, edits, request_fields
from sandbox.network.http.body import EMPTY, Body
from sandbox.network.http.headers import strip
from sandbox.network.intercept.hooks import RefusedWith
from sandbox.policy.addresses import parse_address

if TYPE_CHECKING:
    from sandbox.network.decider.connection import DeciderConnection, DeciderQuestion
    from sandbox.network.http.message import Request

_SIZE = 1 << 16


class Decider:
    """`plaintext`: verdicts may also set headers of requests that travel unencrypted."""

    def __init__(self, link: DeciderConnection, *, plaintext: bool = False) -> None:
        self._link = link
        self._plaintext = plaintext

    async def on_request(self, request: Request) -> Request:
        """`request` as the decider wants it sent. Raises RefusedWith."""
        try:
            said = await self._asked(request)
        except TooMuch as problem:
            raise RefusedWith(400, str(problem), "bad_request") from None
        except Unavailable as problem:
            raise RefusedWith(503, f"request decider: {problem}", "decider_unavailable") from None
        if said["action"] == "deny":
            raise RefusedWith(said["status"], said.get("reason", "denied by the request decider"), "decider")
        headers, removed = edits(said, request.host)
        if headers and request.scheme != "https" and not self._plaintext:
            raise RefusedWith(
                403, "the verdict sets headers of a request that is not encrypted", "plaintext_header_set"
            )
        strip(request.headers, removed)
        for name, values in headers.items():
            for value in values:
                request.headers.pairs.append((name.encode("ascii"), value.encode()))
        return request

    async def _asked(self, request: Request) -> dict[str, Any]:
        encrypted = request.scheme == "https" and parse_address(request.host) is None
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.pairs]
        fields = request_fields(
            request.method, request.host, request.port, request.target, pairs, request.host if encrypted else None
        )
        question = self._link.ask(fields)
        said = await question.verdict()
        return said if said["action"] != "need_body" else await self._shown(request, question, said["max"])

    async def _shown(self, request: Request, question: DeciderQuestion, most: int) -> dict[str, Any]:
        """The verdict after the decider has seen up to `most` bytes of the body, which are then sent on."""
        question.looks()
        length = request.stream.length
        size = most if length is None else min(length, most)
        try:
            self._link.hold(size)
        except Unavailable:
            question.drop()
            raise
        try:
            reading = asyncio.ensure_future(_first(request.stream, most))
            try:
                await asyncio.wait((reading, question.next), return_when=asyncio.FIRST_COMPLETED)
                if question.next.done():
                    return self._early(question)
                data, rest = reading.result()
            finally:
                reading.cancel()
                if not question.next.done() and (not reading.done() or reading.exception() is not None):
                    question.drop()
            question.show(data[:most], len(data) > most)
            said = await question.verdict()
            if said["action"] == "need_body":
                raise question.broke("a second need_body")
        finally:
            self._link.hold(-size)
        request.stream = Seen(data, rest) if data else EMPTY
        return said

    def _early(self, question: DeciderQuestion) -> dict[str, Any]:
        said = question.next.result()
        if said["action"] != "deny":
            raise question.broke("a verdict other than deny while the body was read")
        return said


async def _first(body: Body, most: int) -> tuple[bytes, Body]:
    """The beginning of `body` (more than `most` bytes if it has more, else all of it), and the rest."""
    data = bytearray()
    while len(data) <= most:
        piece = await body.read()
        if not piece:
            break
        data += piece
    return bytes(data), body


class Seen(Body):
    """A body whose beginning has already been read."""

    def __init__(self, data: bytes, rest: Body) -> None:
        self._data, self._rest = data, rest
        self.length = rest.length

    async def read(self) -> bytes:
        if self._data:
            piece, self._data = self._data[:_SIZE], self._data[_SIZE:]
            return piece
        piece = await self._rest.read()
        if not piece:
            self.trailers = self._rest.trailers
        return piece

    def close(self) -> None:
        self._rest.close()
