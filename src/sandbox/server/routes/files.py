"""Files inside: listing, content with ranges, streamed uploads, and small operations such as mkdir."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from litestar import Request, get, post, put
from litestar.params import Parameter
from litestar.response import Stream

from sandbox.client import Client
from sandbox.rpc import messages as m
from sandbox.rpc.methods import FileContent
from sandbox.server.reach import Reached
from sandbox.server.refusal import Refusal
from sandbox.server.server import Server
from sandbox.server.shapes import Done
from sandbox.server.uploading import PIECE, Uploading, too_large

Where = Annotated[str, Parameter(min_length=1, max_length=4096, description="a path inside")]
Mode = Annotated[int, Parameter(ge=0, le=0o7777, description="permissions of a new file")]
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_MOST_DIGITS = 19  # of a number in a range: no file is larger


@get("/v1/sandboxes/{id:str}/files", opt={"verb": "files"})
async def listing(server: Server, reached: Reached, path: Where = ".") -> dict[str, Any]:
    """What is in a directory. Links are not followed."""
    return await server.run(lambda: reached.call("list_files", m.OnePath(path)))


@get("/v1/sandboxes/{id:str}/files/stat", opt={"verb": "files"})
async def stat(server: Server, reached: Reached, path: Where) -> dict[str, Any]:
    """What a path is; a link is followed."""
    return await server.run(lambda: reached.call("stat", m.OnePath(path)))


@get("/v1/sandboxes/{id:str}/files/link", opt={"verb": "files"})
async def link(server: Server, reached: Reached, path: Where) -> dict[str, Any]:
    """Where a symbolic link points."""
    return await server.run(lambda: reached.call("read_link", m.OnePath(path)))


# -- content


@get("/v1/sandboxes/{id:str}/files/content", opt={"verb": "files"}, media_type="application/octet-stream")
async def download(request: Request[Any, Any, Any], server: Server, reached: Reached, path: Where) -> Stream:
    """A file's content. `Range: bytes=…` gives a part of it (206)."""
    return await content(request, server, reached, path)


async def content(request: Request[Any, Any, Any], server: Server, reached: Reached, path: str) -> Stream:
    """The answer to a request for a file's content. Raises OSError, Refusal."""
    opened = await server.run(lambda: _Reader(reached, path), lambda one: one.close())
    try:
        start, length, partial = _range(request.headers.get("range"), opened.size)
    except Refusal:
        opened.close()
        raise
    headers = {
        "content-length": str(length),
        "accept-ranges": "bytes",
        "content-disposition": "attachment",  # a tenant wrote this: a browser must not run it as a page of ours
        "content-security-policy": "sandbox",
    }
    if partial:
        headers["content-range"] = f"bytes {start}-{start + length - 1}/{opened.size}"
    return Stream(
        _pieces(server, opened, start, length),
        headers=headers,
        status_code=206 if partial else 200,
        media_type="application/octet-stream",
    )


class _Reader:
    """A file inside, read in pieces: directly in one of this server's sandboxes, else over the control socket."""

    def __init__(self, reached: Reached, path: str) -> None:
        """Raises OSError."""
        self._client = reached.sandbox if isinstance(reached.sandbox, Client) else None
        self._path = path
        self._sandbox = reached.sandbox
        if self._client is None:
            with FileContent(self._sandbox, m.ReadFile(path, 0, 0)) as content:  # type: ignore[arg-type]
                self.size = content.size
        else:
            self.size = self._client._connection.call("read_file", {"path": path, "offset": 0, "length": 0})["size"]

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes. Raises OSError."""
        if self._client is not None:
            from sandbox.rpc.connection import Content

            asked = {"path": self._path, "offset": offset, "length": length}
            return self._client._connection.call("read_file", asked, Content).content
        with FileContent(self._sandbox, m.ReadFile(self._path, offset, length)) as content:  # type: ignore[arg-type]
            return content.read()

    def close(self) -> None:
        pass


async def _pieces(server: Server, opened: _Reader, start: int, length: int) -> AsyncIterator[bytes]:
    """Exactly `length` bytes, as Content-Length promised; a file that shrinks meanwhile ends the connection."""
    at, left = start, length
    while left > 0:
        piece = await server.run(partial(opened.read, at, min(left, PIECE)))
        if not piece:
            raise EOFError("the file has become shorter")
        yield piece
        at, left = at + len(piece), left - len(piece)


def _range(header: str | None, size: int) -> tuple[int, int, bool]:
    """Start, length, and whether it is only a part. Several ranges are answered with the whole file, as HTTP allows."""
    if not header:
        return 0, size, False
    found = _RANGE.fullmatch(header.replace(" ", ""))
    if found is None or found[0] == "bytes=-":
        return 0, size, False
    first, last = found[1], found[2]
    if max(len(first), len(last)) > _MOST_DIGITS:
        raise Refusal(416, "range", "that part is not there", {"content-range": f"bytes */{size}"})
    if not first:
        start = max(0, size - int(last))
        length = size - start
    else:
        start = int(first)
        end = min(int(last), size - 1) if last else size - 1
        length = end - start + 1
    if length <= 0 or start >= size:
        raise Refusal(416, "range", "that part is not there", {"content-range": f"bytes */{size}"})
    return start, length, True


@put("/v1/sandboxes/{id:str}/files/content", opt={"verb": "files"}, request_max_body_size=None)
async def upload(
    request: Request[Any, Any, Any], server: Server, reached: Reached, path: Where, mode: Mode = 0o644
) -> Done:
    """Creates or replaces a file with the request's body, which is never held in memory as a whole."""
    limit = server.settings.upload_limit
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > limit:
        raise too_large(limit)
    uploading = Uploading(server, reached, path, mode)
    async for piece in request.stream():
        await uploading.add(piece)
    await uploading.end()
    return Done()


# -- small operations, like the JSON-RPC methods of the same names


async def _call(server: Server, reached: Reached, method: str, data: object) -> Done:
    await server.run(lambda: reached.call(method, data))
    return Done()


@post("/v1/sandboxes/{id:str}/files/mkdir", opt={"verb": "files"}, status_code=200)
async def mkdir(server: Server, reached: Reached, data: m.Mkdir) -> Done:
    """Makes a directory. With `parents`, also makes those above it, and an existing directory is no error."""
    return await _call(server, reached, "mkdir", data)


@post("/v1/sandboxes/{id:str}/files/remove", opt={"verb": "files"}, status_code=200)
async def remove(server: Server, reached: Reached, data: m.Remove) -> Done:
    """Removes a file, a link or an empty directory; with `recursive`, a directory and everything in it."""
    return await _call(server, reached, "remove", data)


@post("/v1/sandboxes/{id:str}/files/rename", opt={"verb": "files"}, status_code=200)
async def rename(server: Server, reached: Reached, data: m.Rename) -> Done:
    """Renames a file, replacing one that exists at `new`."""
    return await _call(server, reached, "rename", data)


@post("/v1/sandboxes/{id:str}/files/chmod", opt={"verb": "files"}, status_code=200)
async def chmod(server: Server, reached: Reached, data: m.Chmod) -> Done:
    """Changes permissions; a link is followed."""
    return await _call(server, reached, "chmod", data)


@post("/v1/sandboxes/{id:str}/files/symlink", opt={"verb": "files"}, status_code=200)
async def symlink(server: Server, reached: Reached, data: m.Symlink) -> Done:
    """Makes `path` a symbolic link to `target`."""
    return await _call(server, reached, "symlink", data)


ROUTES = [listing, stat, link, download, upload, mkdir, remove, rename, chmod, symlink]
