"""`/files`: downloads and uploads of files in a sandbox, also by a signed URL. And `/health`."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from email.message import Message
from typing import Annotated, Any

from litestar import Request, get, post
from litestar.params import Parameter
from litestar.response import Stream
from multipart import MultipartError, MultipartSegment, PushMultipartParser

from sandbox.rpc import messages as m
from sandbox.server.e2b import metadata
from sandbox.server.e2b.credentials import FILES
from sandbox.server.e2b.filesystem import entry
from sandbox.server.e2b.reaching import check_user, opt, resolved, there, user_of
from sandbox.server.e2b.refusals import E2bRefusal, answer
from sandbox.server.reach import Reached
from sandbox.server.routes.files import content
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.uploading import Uploading, too_large

MOST_FILES = 1000  # in one upload
INFLATE = 2**18  # bytes unpacked at a time
Where = Annotated[str, Parameter(max_length=4096)]
Asking = Request[Any, Any, Any]
_PLAIN: dict[str, Any] = {"include_in_schema": False, "exception_handlers": {Exception: answer}}


@get("/health", opt=opt("read"), status_code=204, **_PLAIN)
async def health(request: Asking, server: Server, access: Access) -> None:
    """Whether the sandbox is running. Does not resume one that is paused."""
    await there(server, access, request, wakes=False)


@get(FILES, opt=opt("files"), **_PLAIN)
async def download(request: Asking, server: Server, access: Access, path: Where = "", username: Where = "") -> Stream:
    """A file's content."""
    reached = await _here(server, access, request, username)
    try:
        return await content(request, server, reached, resolved(server, reached, path))
    except IsADirectoryError:
        raise E2bRefusal(400, f"{path} is a directory") from None


@post(FILES, opt=opt("files"), status_code=200, request_max_body_size=None, **_PLAIN)
async def upload(
    request: Asking, server: Server, access: Access, path: Where = "", username: Where = ""
) -> list[dict[str, Any]]:
    """Creates or replaces files: one from the whole body, or several from a form, by their names."""
    wanted = metadata.asked(request.headers.multi_items())
    reached = await _here(server, access, request, username)
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > 2 * server.settings.upload_limit:
        raise too_large(server.settings.upload_limit)
    kind = Message()
    kind["content-type"] = request.headers.get("content-type", "")
    body = _unpacked(request)
    if kind.get_content_type() == "multipart/form-data":
        paths = await _form(server, reached, body, str(kind.get_param("boundary") or ""), path)
    else:
        if not path:
            raise E2bRefusal(400, "say where to: ?path=")
        await _one(server, reached, body, resolved(server, reached, path))
        paths = [resolved(server, reached, path)]
    return [await server.run(lambda one=one: _written(reached, one, wanted)) for one in paths]  # type: ignore[misc]


def _written(reached: Reached, path: str, wanted: dict[str, str]) -> dict[str, Any]:
    metadata.replace(reached, path, wanted)
    told = entry(reached, path)
    written = {"name": told["name"], "path": told["path"], "type": "file"}
    return {**written, "metadata": wanted} if wanted else written


async def _here(server: Server, access: Access, request: Asking, username: str) -> Reached:
    reached = await there(server, access, request)
    check_user(reached, username or user_of(request))
    return reached


# -- uploads


async def _unpacked(request: Asking) -> AsyncIterator[bytes]:
    """The body, unpacked in small steps: the caller counts each one, so a small body cannot unpack to a huge one."""
    packed = request.headers.get("content-encoding", "identity").lower()
    if packed == "identity":
        async for piece in request.stream():
            yield piece
        return
    if packed != "gzip":
        raise E2bRefusal(415, "a body is sent as it is, or packed by gzip")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        async for piece in request.stream():
            while piece:
                yield unpacking.decompress(piece, INFLATE)
                piece = unpacking.unconsumed_tail
                if unpacking.eof:
                    if unpacking.unused_data or piece:
                        raise E2bRefusal(400, "there is something after the end of the packed body")
                    break
        while rest := unpacking.decompress(b"", INFLATE):
            yield rest
    except zlib.error:
        raise E2bRefusal(400, "the body is not packed by gzip") from None
    if not unpacking.eof:
        raise E2bRefusal(400, "the packed body is not whole")


async def _one(server: Server, reached: Reached, body: AsyncIterator[bytes], path: str) -> None:
    uploading = await _begun(server, reached, path)
    async for piece in body:
        await uploading.add(piece)
    await uploading.end()


async def _begun(server: Server, reached: Reached, path: str) -> Uploading:
    """Prepares to write a file: makes the directories above it."""
    above = path.rpartition("/")[0]
    if above:
        await server.run(lambda: reached.call("mkdir", m.Mkdir(above)))
    return Uploading(server, reached, path)


async def _form(server: Server, reached: Reached, body: AsyncIterator[bytes], boundary: str, path: str) -> list[str]:
    """Writes the files of a form as it arrives. `path` is for a single file; several are named in the form itself."""
    if not boundary:
        raise E2bRefusal(400, "the form has no boundary")
    written: list[str] = []
    uploading: Uploading | None = None
    room = server.settings.upload_limit
    try:
        with PushMultipartParser(boundary, max_segment_count=MOST_FILES, strict=True) as parser:
            async for piece in body:
                for event in parser.parse(piece) if piece else ():
                    if isinstance(event, MultipartSegment):
                        if path and written:
                            raise E2bRefusal(400, "?path= is for one file; a form of several names each")
                        written.append(resolved(server, reached, path or event.filename or ""))
                        if event.name != "file" or not (path or event.filename):
                            raise E2bRefusal(400, "each part of the form is called file, and has a file name")
                        uploading = await _begun(server, reached, written[-1])
                        uploading.room = room
                    elif uploading is not None and event is not None:
                        await uploading.add(bytes(event))
                    elif uploading is not None:
                        await uploading.end()
                        room, uploading = uploading.room, None
    except MultipartError as problem:
        raise E2bRefusal(400, f"the form is not readable: {problem}") from None
    return written


ROUTES = [health, download, upload]
