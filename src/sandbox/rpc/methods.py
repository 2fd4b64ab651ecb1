"""The methods, one line each in the table at the end; docs/rpc.md describes them."""

from __future__ import annotations

import errno
import os
import signal as signals
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from sandbox.rpc import commands, faults
from sandbox.rpc import messages as m
from sandbox.rpc.call import Call
from sandbox.rpc.faults import Fault
from sandbox.rpc.hooks import remote_hooks
from sandbox.rpc.lines import CONTENT_LIMIT

if TYPE_CHECKING:
    from sandbox.rpc.session import Session
    from sandbox.sandbox import Sandbox

Answer = dict[str, Any] | None  # None: the method has answered already, or will
Run = Callable[["Session", Call, Any], Answer]


class Method:
    """How a method's parameters are read, and what it does.

    `inline`: in the reading thread, so it must not block. `unordered`: it waits for no other request's turn.
    """

    def __init__(self, params: Any, run: Run, *, inline: bool = False, unordered: bool = False) -> None:
        self.run = run
        self.inline = inline
        self.unordered = inline or unordered
        self._decoder = msgspec.json.Decoder(params)

    def read(self, params: Raw) -> Any:
        """Raises Fault when they are not what the method takes."""
        try:
            return self._decoder.decode(b"{}" if bytes(memoryview(params)[:5]) == b"null" else params)
        except msgspec.ValidationError as problem:
            raise Fault(faults.INVALID_PARAMS, f"invalid params: {problem}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise Fault(faults.PARSE, f"not a line of JSON: {problem}") from None


def _create(session: Session, call: Call, config: dict[str, Any]) -> Answer:
    asked = config.pop("hooks", None)
    hooks = remote_hooks(asked, session.asking.hook) if asked is not None else None
    sandbox = session.place.create(config, hooks)
    sandbox.on_event(session.events.put)
    return {"id": sandbox.id, "env": sandbox.environment}


def _close(session: Session, call: Call, asked: m.Close) -> Answer:
    session.finish(call, asked.grace)
    return None


def _input(session: Session, call: Call, asked: m.Input) -> Answer:
    def answer(problem: Exception | None) -> None:
        if problem is None:
            call.reply({})
        else:
            call.fail(problem)

    session.call(asked.request).inputs.put(asked.data, asked.end, answer)
    return None


def _cancel(session: Session, call: Call, asked: m.Cancel) -> Answer:
    session.call(asked.request).cancel()
    return {}


def _resize(session: Session, call: Call, asked: m.Resize) -> Answer:
    session.call(asked.request).process().resize(asked.rows, asked.cols)
    return {}


def _signal(session: Session, call: Call, asked: m.Signal) -> Answer:
    session.call(asked.request).process().signal(_number(asked.signal))
    return {}


def _number(named: int | str) -> int:
    if isinstance(named, int):
        return named
    name = named.upper()
    try:
        return signals.Signals[name if name.startswith("SIG") else f"SIG{name}"]
    except KeyError:
        raise Fault(faults.INVALID_PARAMS, f"no signal {named!r}; TERM, INT, HUP, KILL, … or a number") from None


def _read_file(session: Session, call: Call, asked: m.ReadFile) -> Answer:
    sandbox = session.place.sandbox()
    with _opened(sandbox, asked.path, os.O_RDONLY) as descriptor:
        size = sandbox.stat(asked.path)["size"] if descriptor is None else os.fstat(descriptor).st_size
        length = asked.length if asked.length is not None else max(0, size - asked.offset)
        if length > CONTENT_LIMIT:
            raise Fault(
                faults.TOO_LARGE,
                f"{asked.path} has {size} bytes; one message carries {CONTENT_LIMIT}: read it in pieces"
                " with offset and length",
                {"size": size, "limit": CONTENT_LIMIT},
            )
        with session.budget.hold(length):
            if descriptor is None:
                content = b"".join(sandbox._read_at(asked.path, asked.offset, length))
            else:
                content = _read(descriptor, asked.offset, length)
            call.turn.over()  # whoever takes long to hear the answer holds up nobody
            call.reply_content(content, {"size": size})
    return None


def _read(descriptor: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0 and (part := os.pread(descriptor, length, offset)):
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_file(session: Session, call: Call, asked: m.WriteFile) -> Answer:
    sandbox = session.place.sandbox()
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if asked.offset == 0 else 0)
    view, at = memoryview(asked.content), asked.offset
    with _opened(sandbox, asked.path, flags, asked.mode) as descriptor:
        if descriptor is None:
            sandbox._write_at(asked.path, at, view, asked.mode)
            return {}
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written
    return {}


@contextmanager
def _opened(sandbox: Sandbox, path: str, flags: int, mode: int = 0o644) -> Iterator[int | None]:
    """A descriptor of the file; None where only tenants can open it (a directory that a provider serves)."""
    try:
        descriptor = sandbox._open_file(path, flags, mode)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _list_files(session: Session, call: Call, asked: m.OnePath) -> Answer:
    files = [dict(one) for one in session.place.sandbox().list_files(asked.path)]
    for file in files:
        exact = os.fsencode(file["name"])
        if exact.decode("utf-8", "replace") != file["name"]:  # JSON can only show something like it
            file["name_bytes"] = exact
    return {"files": files}


def _stat(session: Session, call: Call, asked: m.OnePath) -> Answer:
    return dict(session.place.sandbox().stat(asked.path))


def _mkdir(session: Session, call: Call, asked: m.OnePath) -> Answer:
    session.place.sandbox().mkdir(asked.path)
    return {}


def _remove(session: Session, call: Call, asked: m.Remove) -> Answer:
    session.place.sandbox().remove(asked.path, recursive=asked.recursive)
    return {}


def _rename(session: Session, call: Call, asked: m.Rename) -> Answer:
    session.place.sandbox().rename(asked.old, asked.new)
    return {}


def _update_network(session: Session, call: Call, changes: dict[str, Any]) -> Answer:
    session.place.sandbox().update_network(changes)
    return {}


METHODS = {
    "create": Method(m.Anything, _create),
    "exec": Method(m.Exec, lambda s, call, asked: commands.run(call, s.place.sandbox(), asked)),
    "exec_stream": Method(m.Exec, lambda s, call, asked: commands.stream(call, s.place.sandbox(), asked)),
    "exec_pipe": Method(m.ExecPipe, lambda s, call, asked: commands.pipe(call, s.place.sandbox(), asked)),
    "exec_tty": Method(
        m.ExecTty, lambda s, call, asked: commands.terminal(call, s.place.sandbox(), asked, s.place.terminals)
    ),
    "input": Method(m.Input, _input, inline=True),
    "resize": Method(m.Resize, _resize),
    "signal": Method(m.Signal, _signal),
    "cancel": Method(m.Cancel, _cancel, inline=True),
    "write_file": Method(m.WriteFile, _write_file),
    "read_file": Method(m.ReadFile, _read_file),
    "list_files": Method(m.OnePath, _list_files),
    "stat": Method(m.OnePath, _stat),
    "mkdir": Method(m.OnePath, _mkdir),
    "remove": Method(m.Remove, _remove),
    "rename": Method(m.Rename, _rename),
    "update_network": Method(m.Anything, _update_network),
    "close": Method(m.Close, _close, unordered=True),
}
