"""A request and a response, as hooks see them and as the interceptor moves them.

Bodies are streams: a piece is read from one side when the other has room for it. They become `bytes` only
when a hook asks for `.body`, and then at most `MAX_BUFFERED` of them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sandbox.errors import Denied
from sandbox.network.http.body_memory import Allowance, Kept

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    Pair = tuple[bytes, bytes]
    Inform = Callable[[int, list[Pair]], Awaitable[None]]

MAX_BUFFERED = 16 * 1024 * 1024
DEFAULT_PORTS = {"http": 80, "https": 443}


class BadMessage(Exception):
    """What came is not HTTP that can be read in one way only. `status` is what to answer."""

    def __init__(self, reason: str, status: int = 400) -> None:
        self.status = status
        super().__init__(reason)


class Headers:
    """Header fields in order, several of one name allowed, names compared without regard to case."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self.pairs: list[Pair] = list(pairs)

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of `name`."""
        wanted = name.lower().encode("latin-1")
        for one, value in self.pairs:
            if one.lower() == wanted:
                return value.decode("latin-1")
        return default

    def get_all(self, name: str) -> list[str]:
        """Every value of `name`, in order."""
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for one, value in self.pairs if one.lower() == wanted]

    def set(self, name: str, value: str) -> None:
        """Replaces every field of `name` by one."""
        self.remove(name)
        self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """One more field. Raises ValueError for what could end the field and begin another."""
        if not name or any(character in name for character in "\r\n\0: ") or any(c in value for c in "\r\n\0"):
            raise ValueError(f"not a header field: {name!r}")
        self.pairs.append((name.encode("latin-1"), value.encode("latin-1")))

    def remove(self, name: str) -> None:
        """Takes every field of `name` away; none is fine."""
        wanted = name.lower().encode("latin-1")
        self.pairs = [pair for pair in self.pairs if pair[0].lower() != wanted]

    def copy(self) -> Headers:
        """The same fields, changed independently."""
        return Headers(self.pairs)

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    __setitem__ = set
    __delitem__ = remove

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1") for name, _ in self.pairs))

    def __len__(self) -> int:
        return len(self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self.pairs == other.pairs

    def __repr__(self) -> str:
        return f"Headers({', '.join(self)})"  # names only: values may be credentials


class Body:
    """A message's content, piece by piece. This one is empty; `length` is None when not known beforehand."""

    length: int | None = 0
    trailers: tuple[Pair, ...] = ()  # known when `read` has returned b""

    async def read(self) -> bytes:
        """The next piece, b"" at the end. Raises OSError when the sender went away before that."""
        return b""

    def close(self) -> None:
        """Nobody will read the rest. Idempotent."""


class Whole(Body):
    """Content that is already here."""

    def __init__(self, data: bytes, trailers: tuple[Pair, ...] = (), kept: Kept | None = None) -> None:
        self.data = data
        self.length = len(data)
        self.trailers = trailers
        self._given = False
        self._kept = kept  # counts against the sandbox's allowance for as long as this is there

    async def read(self) -> bytes:
        if self._given:
            return b""
        self._given = True
        return self.data


EMPTY = Body()


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
        from sandbox.network.http.bodies import decoded

        if not isinstance(self.stream, Whole):
            self.stream = await whole(decoded(self.headers, self.stream), self.allowance)
            self._set_length()
        return self.stream.data

    @property
    def body(self) -> bytes:
        """The whole body. Reading it waits until all of it has come; Denied when that is more than
        MAX_BUFFERED."""
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
        """Tells which loop the body is read in, so that a hook in another thread can ask for it."""
        self._loop, self._loop_thread = loop, threading.get_ident()

    def _set_length(self) -> None:
        self.headers.remove("Transfer-Encoding")
        self.headers.set("Content-Length", str(self.stream.length))


class Request(_Message):
    """What a tenant asks for. `url`, `host`, `path`, `method`, `headers` and `body` can be changed by a
    hook."""

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
        self.problem: BadMessage | None = None  # set when what came cannot be read: answered, never sent on

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
        """Host, and the port when it is not the scheme's own: what Host: says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address."""
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
        """The same request, changed independently; its body only when that has been buffered."""
        body = Whole(self.stream.data) if isinstance(self.stream, Whole) else EMPTY
        return Request(self.method, self.scheme, self.host, self.port, self.target, self.headers.copy(), body)

    def __repr__(self) -> str:
        return f"Request({self.method} {self.host}:{self.port}{self.path})"


class Response(_Message):
    """What came back."""

    def __init__(self, status: int, headers: Headers, stream: Body = EMPTY) -> None:
        super().__init__(headers, stream)
        self.status = status
        self.phrase = b""  # what HTTP/1.1 says beside the status
        self.last = False  # whether the connection ends after it: upstream's does
        # On a 101: upstream's side with what was already read from it, and then what moves frames between the
        # two.
        self.switched: tuple[ByteStream, bytes] | None = None
        self.upgraded: Upgraded | None = None

    @property
    def status_code(self) -> int:
        """The same as `status`."""
        return self.status

    def __repr__(self) -> str:
        return f"Response({self.status})"


if TYPE_CHECKING:
    from sandbox.network.gate.stream import ByteStream

    # Called with the tenant's side and what was already read from it.
    Upgraded = Callable[[ByteStream, bytes], Awaitable[None]]


async def whole(body: Body, allowance: Allowance | None = None) -> Whole:
    """All of `body`, or Denied when there is more than MAX_BUFFERED, or more than the sandbox's allowance."""
    if isinstance(body, Whole):
        return body
    kept = (allowance or Allowance()).keep(0)
    data = bytearray()  # one run of bytes: pieces may be of one byte each
    while piece := await body.read():
        kept.add(len(piece))
        if kept.size > MAX_BUFFERED:
            raise Denied(
                "body-too-large",
                "a hook reads the body, which is larger than {max_buffered} bytes",
                max_buffered=MAX_BUFFERED,
            )
        if allowance is not None and allowance.spent:
            raise Denied("body-too-large", "too many bodies are being read by hooks at the same time")
        data += piece
    return Whole(bytes(data), body.trailers, kept)
