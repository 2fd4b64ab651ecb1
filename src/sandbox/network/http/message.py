"""A request and a response, as hooks see them and as the interceptor moves them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sandbox.network.http.body import EMPTY, Body, Whole, whole
from sandbox.network.http.compression import decoded
from sandbox.network.http.secret_uses import ignored

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from sandbox.network.http.body_memory import Allowance
    from sandbox.network.http.headers import Headers, Pair
    from sandbox.network.stream import ByteStream

    Inform = Callable[[int, list[Pair]], Awaitable[None]]
    Upgraded = Callable[[ByteStream, bytes], Awaitable[None]]

DEFAULT_PORTS = {"http": 80, "https": 443}


class BadMessage(Exception):
    """A message is malformed or ambiguous. `status` is the status to answer with."""

    def __init__(self, reason: str, status: int = 400) -> None:
        self.status = status
        super().__init__(reason)


class _Message:
    """What requests and responses share: headers and a body that is buffered only on demand."""

    headers: Headers

    def __init__(self, headers: Headers, stream: Body) -> None:
        self.headers = headers
        self.stream = stream
        self.allowance: Allowance | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0

    async def read(self) -> bytes:
        """The whole body, decompressed when it was gzip or deflate. For hooks that are coroutines."""
        if not isinstance(self.stream, Whole):
            self.stream = await whole(decoded(self.headers, self.stream), self.allowance)
            self._set_length()
        return self.stream.data

    @property
    def body(self) -> bytes:
        """The whole body. Reading it waits until all of it has arrived. Raises Denied beyond MAX_BUFFERED."""
        if isinstance(self.stream, Whole):
            return self.stream.data
        if self.stream is EMPTY:
            return b""
        if self._loop is None or threading.get_ident() == self._loop_thread:
            raise RuntimeError("a coroutine reads a body with `await message.read()`")
        import asyncio

        return asyncio.run_coroutine_threadsafe(self.read(), self._loop).result()

    @body.setter
    def body(self, data: bytes | str) -> None:
        self.stream = Whole(data.encode() if isinstance(data, str) else bytes(data))
        self.headers.remove("Content-Encoding")
        self._set_length()

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sets the loop in which the body is read, so that a hook in another thread can ask for it."""
        self._loop, self._loop_thread = loop, threading.get_ident()

    def _set_length(self) -> None:
        self.headers.remove("Transfer-Encoding")
        self.headers.set("Content-Length", str(self.stream.length))


class Request(_Message):
    """What a tenant asks for. A hook can change `url`, `host`, `path`, `method`, `headers` and `body`."""

    def __init__(
        self,
        method: str,
        scheme: str,
        host: str,
        port: int,
        target: str,
        headers: Headers,
        stream: Body = EMPTY,
        *,
        inform: Inform | None = None,
    ) -> None:
        super().__init__(headers, stream)
        self.method = method
        self.scheme = scheme
        self.host = host
        self.port = port
        self.target = target  # path and query, as sent
        self.inform = inform  # passes an informational (1xx) response on to the tenant
        self.uses = ignored()  # of secrets, in it and in its response
        self.problem: BadMessage | None = None  # set when the request is malformed: answered, never sent on

    @property
    def path(self) -> str:
        """The path without the query."""
        return self.target.partition("?")[0]

    @path.setter
    def path(self, path: str) -> None:
        _, mark, query = self.target.partition("?")
        self.target = path + mark + query

    @property
    def query(self) -> str:
        """What follows the question mark."""
        return self.target.partition("?")[2]

    @query.setter
    def query(self, query: str) -> None:
        self.target = f"{self.path}?{query}" if query else self.path

    @property
    def authority(self) -> str:
        """The value of `Host`: the host, and the port when it is not the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"

    @url.setter
    def url(self, url: str) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.username is not None:
            raise ValueError(f"not an http or https address: {url!r}")
        self.scheme, self.host = parts.scheme, parts.hostname
        self.port = parts.port or DEFAULT_PORTS[parts.scheme]
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def copy(self) -> Request:
        """A copy that can be changed independently. It has the body only if that has been buffered."""
        body = Whole(self.stream.data) if isinstance(self.stream, Whole) else EMPTY
        return Request(self.method, self.scheme, self.host, self.port, self.target, self.headers.copy(), body)

    def __repr__(self) -> str:
        return f"Request({self.method} {self.host}:{self.port}{self.path})"


class Response(_Message):
    """Upstream's response."""

    def __init__(self, status: int, headers: Headers, stream: Body = EMPTY) -> None:
        super().__init__(headers, stream)
        self.status = status
        self.phrase = b""  # HTTP/1.1's reason phrase
        self.last = False  # whether the connection ends after it, as upstream's does
        # After a 101: upstream's side with what was already read from it, and the function that then moves frames.
        self.switched: tuple[ByteStream, bytes] | None = None
        self.upgraded: Upgraded | None = None

    @property
    def status_code(self) -> int:
        """The same as `status`."""
        return self.status

    def __repr__(self) -> str:
        return f"Response({self.status})"
