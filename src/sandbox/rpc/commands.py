"""The methods that run a command: exec, exec_stream, exec_pipe, exec_tty."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Any

from sandbox.result import Collector, ExecResult
from sandbox.rpc import faults
from sandbox.rpc.call import Call
from sandbox.rpc.faults import Fault
from sandbox.rpc.messages import Exec, ExecPipe, ExecTty
from sandbox.rpc.terminals import Terminals

if TYPE_CHECKING:
    from sandbox.guest.process import Process
    from sandbox.sandbox import Sandbox


def run(call: Call, sandbox: Sandbox, asked: Exec) -> dict[str, Any]:
    """`exec`: one answer, with the output up to `max_output` bytes of each stream."""
    output = {"stdout": Collector(asked.max_output), "stderr": Collector(asked.max_output)}
    result = _run(call, sandbox, asked, asked.stdin or b"", lambda name, data: output[name].add(data))
    said = {name: collected.value() for name, collected in output.items()} | _ended(result)
    if any(collected.truncated for collected in output.values()):
        said["truncated"] = True
    return said


def stream(call: Call, sandbox: Sandbox, asked: Exec) -> dict[str, Any]:
    """`exec_stream`: an answer for each piece of output, a last one with the exit code."""
    result = _run(call, sandbox, asked, asked.stdin or b"", lambda name, data: call.piece({name: data}))
    return _ended(result)


def pipe(call: Call, sandbox: Sandbox, asked: ExecPipe) -> dict[str, Any]:
    """`exec_pipe`: as `exec_stream`, with a first answer that it runs, and its stdin from `input`."""
    result = _run(call, sandbox, asked, None, lambda name, data: call.piece({name: data}))
    return _ended(result)


def terminal(call: Call, sandbox: Sandbox, asked: ExecTty, terminals: Terminals) -> dict[str, Any]:
    """`exec_tty`: as `exec_pipe` on a terminal, whose output is all `stdout`."""
    size = (asked.rows, asked.cols)

    def start() -> Process:
        return sandbox.spawn(asked.command, asked.working_dir, env=asked.env, timeout=asked.timeout, pty=size)

    shown, joined = terminals.join(asked.keep, start)
    if joined:
        shown.process.resize(*size)
    call.runs(shown.process, on_cancel=shown.wake if asked.keep else None)
    assert shown.process.terminal is not None
    Thread(target=call.inputs.feed, args=(os.dup(shown.process.terminal),), daemon=True).start()
    call.piece({"pid": shown.process.pid, "joined": joined})
    result = shown.watch(lambda data: call.piece({"stdout": data}), lambda: call.gone or call.cancelled)
    if result is None:
        raise Fault(faults.CANCELLED, "left; the terminal lives on" if asked.keep else "cancelled")
    return _ended(result)


def _run(
    call: Call, sandbox: Sandbox, asked: Exec | ExecPipe, given: bytes | None, take: Callable[[str, bytes], None]
) -> ExecResult:
    """Runs to the end, handing over output as it comes. `given` None: stdin comes from `input`."""
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if given == b"" else None
    try:
        process = sandbox.spawn(
            asked.command, asked.working_dir, env=asked.env, timeout=asked.timeout, stdin=nothing
        )
    finally:
        if nothing is not None:
            os.close(nothing)
    try:
        call.runs(process)
        if given is None:
            # The feeder owns stdin from here on: a command that does not read must not hold up its own output.
            process.wait_started()
            stdin, process.stdin = process.stdin, None
            Thread(target=call.inputs.feed, args=(stdin,), daemon=True).start()
            call.piece({"pid": process.pid})
        for chunk in process.chunks(given or b""):
            take(chunk.stream, chunk.data)
            if call.gone:
                process.kill()
        result = process.wait()
    finally:
        call.inputs.close()
        process.close()
    if call.cancelled:
        raise Fault(faults.CANCELLED, "cancelled")
    return result


def _ended(result: ExecResult) -> dict[str, Any]:
    """What is said of every command that ended; `signal` and the three marks only when they apply."""
    said: dict[str, Any] = {
        "exit_code": result.exit_code,
        "duration_ms": result.duration_ms,
        "user_ms": result.user_ms,
        "system_ms": result.system_ms,
        "max_rss_kb": result.max_rss_kb,
    }
    if result.signal is not None:
        said["signal"] = result.signal
    if result.timed_out:
        said["timed_out"] = True
    if result.out_of_memory:
        said["out_of_memory"] = True
    if result.note:
        said["note"] = result.note
    return said
