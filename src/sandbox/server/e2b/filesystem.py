"""`filesystem.Filesystem`: listing, moving, removing and watching files in a sandbox. Content: see `transfer.py`."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from litestar import Request, post
from litestar.response import Stream

from sandbox.rpc import messages as m
from sandbox.server.e2b import connect, messages, metadata, watching
from sandbox.server.e2b.connect import Failed
from sandbox.server.e2b.pings import ping_of
from sandbox.server.e2b.reaching import USER, check_user, opt, resolved, there, user_of
from sandbox.server.e2b.state import MOST_STREAMS, MOST_WATCHERS
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server

MOST_ENTRIES = 10_000  # of one listing
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999
KINDS = {"file": "FILE_TYPE_FILE", "directory": "FILE_TYPE_DIRECTORY", "symlink": "FILE_TYPE_SYMLINK"}
_FORMS = {"file": modes.S_IFREG, "directory": modes.S_IFDIR, "symlink": modes.S_IFLNK}
Asking = Request[Any, Any, Any]
_UNARY: dict[str, Any] = {
    "opt": opt("files"), "status_code": 200, "include_in_schema": False,
    "exception_handlers": {Exception: connect.answer},
}  # fmt: skip
_STREAM: dict[str, Any] = {**_UNARY, "exception_handlers": {Exception: connect.answer_stream}}


def entry(reached: Reached, path: str) -> dict[str, Any]:
    """What is at a path; links are followed. Raises OSError."""
    target = _link(reached, path)
    try:
        found = reached.call("stat", m.OnePath(path))
    except FileNotFoundError:
        if target is None:
            raise
        found = {"kind": "symlink", "size": 0, "mode": 0o777, "mtime": 0.0}
    return _told(path, found, target, metadata.of(reached, path) if found["kind"] == "file" else {})


def _link(reached: Reached, path: str) -> str | None:
    try:
        target = str(reached.call("read_link", m.OnePath(path))["target"])
    except OSError as problem:
        if problem.errno in (errno.EINVAL, errno.ENOENT, errno.EACCES):
            return None
        raise
    return os.path.normpath(os.path.join(os.path.dirname(path), target))


def _told(path: str, found: dict[str, Any], target: str | None, more: dict[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": shown(os.path.basename(path)) or "/",
        "type": KINDS.get(found["kind"], "FILE_TYPE_UNSPECIFIED"),
        "path": shown(path),
        "size": str(found["size"]),
        "mode": found["mode"],
        "permissions": modes.filemode(_FORMS.get(found["kind"], 0) | found["mode"]),
        "owner": USER,
        "group": USER,
        "modifiedTime": _moment(found["mtime"]),
    }
    if more:
        told["metadata"] = more
    return told if target is None else {**told, "symlinkTarget": shown(target)}


def _moment(seconds: float) -> str:
    """A file's time, which anybody inside may set to anything, as the nearest one that a date can show."""
    return datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC).isoformat().replace("+00:00", "Z")


def shown(name: str) -> str:
    """A name inside, as JSON can show it: bytes that are not UTF-8 are replaced."""
    return os.fsencode(name).decode("utf-8", "replace")


@post("/filesystem.Filesystem/Stat", **_UNARY)
async def stat(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """What is at a path."""
    asked = await connect.read(request, messages.OnePath)
    reached = await _here(server, access, request)
    return {"entry": await server.run(lambda: entry(reached, resolved(server, reached, asked.path)))}


@post("/filesystem.Filesystem/MakeDir", **_UNARY)
async def make_dir(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Makes a directory and those above it. One that exists already is an error, which clients expect."""
    asked = await connect.read(request, messages.OnePath)
    reached = await _here(server, access, request)
    path = resolved(server, reached, asked.path)

    def make() -> dict[str, Any]:
        if os.path.dirname(path) != path:
            reached.call("mkdir", m.Mkdir(os.path.dirname(path)))
        reached.call("mkdir", m.Mkdir(path, parents=False))
        return entry(reached, path)

    return {"entry": await server.run(make)}


@post("/filesystem.Filesystem/Move", **_UNARY)
async def move(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Renames a file, and makes the directories above its new name."""
    asked = await connect.read(request, messages.Move)
    reached = await _here(server, access, request)
    old, new = resolved(server, reached, asked.source), resolved(server, reached, asked.destination)

    def act() -> dict[str, Any]:
        reached.call("stat", m.OnePath(old))
        reached.call("mkdir", m.Mkdir(os.path.dirname(new)))
        reached.call("rename", m.Rename(old, new))
        return entry(reached, new)

    return {"entry": await server.run(act)}


@post("/filesystem.Filesystem/Remove", **_UNARY)
async def remove(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Removes a file, or a directory with everything in it. A missing path is no error."""
    asked = await connect.read(request, messages.OnePath)
    reached = await _here(server, access, request)

    def act() -> None:
        try:
            reached.call("remove", m.Remove(resolved(server, reached, asked.path), recursive=True))
        except FileNotFoundError:
            pass

    await server.run(act)
    return {}


@post("/filesystem.Filesystem/ListDir", **_UNARY)
async def list_dir(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """What is in a directory and, down to the requested depth, below it. Links are not followed."""
    asked = await connect.read(request, messages.ListDir)
    reached = await _here(server, access, request)
    return {
        "entries": await server.run(
            lambda: _listed(reached, resolved(server, reached, asked.path), max(1, asked.depth))
        )
    }


def _listed(reached: Reached, top: str, depth: int) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    below = deque([(top, 1)])
    while below:
        directory, level = below.popleft()
        known = metadata.below(reached, directory)
        for one in reached.call("list_files", m.OnePath(directory))["files"]:
            path = os.path.join(directory, one["name"])
            if one["kind"] == "symlink":
                found[path] = _linked(reached, path, one)
            else:
                found[path] = _told(path, one, None, known.get(one["name"], {}))
            if len(found) > MOST_ENTRIES:
                raise Failed("resource_exhausted", f"a listing has at most {MOST_ENTRIES} entries")
            if one["kind"] == "directory" and level < depth:
                below.append((path, level + 1))
    return [found[path] for path in sorted(found, key=lambda path: path.split("/"))]


def _linked(reached: Reached, path: str, one: dict[str, Any]) -> dict[str, Any]:
    """A link in a listing: what it leads to or, where that cannot be said (a loop, a closed directory), itself."""
    try:
        return entry(reached, path)
    except OSError:
        return _told(path, one, None, {})


async def _here(server: Server, access: Access, request: Asking) -> Reached:
    reached = await there(server, access, request)
    check_user(reached, user_of(request))
    return reached


# -- watching


@post("/filesystem.Filesystem/WatchDir", **_STREAM)
async def watch_dir(request: Asking, server: Server, access: Access) -> Stream:
    """Streams what happens in a directory, as it happens."""
    asked = await connect.only(request, messages.WatchDirectory)
    reached = await _here(server, access, request)
    limit = connect.deadline(request)
    state = server.e2b.of(reached.id)
    state.room(state.streams, MOST_STREAMS, "streams")
    watcher = await _watcher(server, reached, asked)
    return connect.streamed(state.counted(_watched(server, reached, watcher, ping_of(request), limit)))


async def _watched(
    server: Server, reached: Reached, watcher: watching.Watcher, ping: float, limit: float | None
) -> AsyncIterator[dict[str, Any]]:
    """The messages of a watcher's stream."""
    yield {"start": {}}
    happening = watching.events(server, watcher, ping, limit)
    try:
        async for one in happening:
            if one is None:
                yield {"keepalive": {}}
            else:
                happened = one
                yield {"filesystem": await server.run(lambda: _event(reached, watcher, happened))}  # noqa: B023
    finally:
        await happening.aclose()  # type: ignore[attr-defined]


def _event(reached: Reached, watcher: watching.Watcher, said: watching.Said) -> dict[str, Any]:
    """An event and, if the client asked for it, what is at that path now."""
    told: dict[str, Any] = {"name": said.name, "type": f"EVENT_TYPE_{said.type}"}
    if watcher.entries:
        try:
            told["entry"] = entry(reached, os.path.join(watcher.path, said.name))
        except OSError:
            pass  # it was removed meanwhile
    return told


@post("/filesystem.Filesystem/CreateWatcher", **_UNARY)
async def create_watcher(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Begins to watch. `GetWatcherEvents` returns the events."""
    asked = await connect.read(request, messages.WatchDirectory)
    reached = await _here(server, access, request)
    state = server.e2b.of(reached.id)
    state.room(len(state.watchers), MOST_WATCHERS, "watchers")
    watcher = await _watcher(server, reached, asked)
    id = os.urandom(8).hex()
    state.watchers[id] = watcher
    return {"watcherId": id}


@post("/filesystem.Filesystem/GetWatcherEvents", **_UNARY)
async def watcher_events(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """What has happened since the last call."""
    asked = await connect.read(request, messages.OfWatcher)
    reached = await _here(server, access, request)
    watcher = server.e2b.of(reached.id).watchers.get(asked.watcher_id)
    if watcher is None:
        raise Failed("not_found", "there is no such watcher")
    return {"events": await server.run(lambda: [_event(reached, watcher, one) for one in watcher.happened()])}


@post("/filesystem.Filesystem/RemoveWatcher", **_UNARY)
async def remove_watcher(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Ends a watcher."""
    asked = await connect.read(request, messages.OfWatcher)
    reached = await _here(server, access, request)
    watcher = server.e2b.of(reached.id).watchers.pop(asked.watcher_id, None)
    if watcher is None:
        raise Failed("not_found", "there is no such watcher")
    await server.run(watcher.close)
    return {}


async def _watcher(server: Server, reached: Reached, asked: messages.WatchDirectory) -> watching.Watcher:
    path = resolved(server, reached, asked.path)

    def start() -> watching.Watcher:
        if reached.call("stat", m.OnePath(path))["kind"] != "directory":
            raise Failed("invalid_argument", f"{path} is not a directory")
        return watching.Watcher(reached, path, recursive=asked.recursive, entries=asked.include_entry)

    return await server.run(start, lambda late: late.close())


ROUTES = [
    stat, make_dir, move, remove, list_dir, watch_dir, create_watcher, watcher_events, remove_watcher,
]  # fmt: skip
