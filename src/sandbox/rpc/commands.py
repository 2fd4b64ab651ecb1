"""The methods that run a command: exec, exec_stream, exec_pipe, exec_tty."""

from __future__ import annotations

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

_END_OF_INPUT = b"\x04"  # Ctrl-D: how somebody at a terminal says it


def run(call: Call, sandbox: Sandbox, asked: Exec) -> dict[str, Any]:
    """`exec`: one answer, with the output up to `max_output` bytes of each stream."""
    output = {"stdout": Collector(asked.max_output), "stderr": Collector(asked.max_output)}
    result = _run(call, _begun(sandbox, asked), lambda name, data: output[name].add(data))
    said = {name: collected.value() for name, collected in output.items()} | _ended(result)
    if any(collected.truncated for collected in output.values()):
        said["truncated"] = True
    return said


def stream(call: Call, sandbox: Sandbox, asked: Exec) -> dict[str, Any]:
    """`exec_stream`: an answer for each piece of output, a last one with the exit code."""
    return _ended(_run(call, _begun(sandbox, asked), lambda name, data: call.piece({name: data})))


def pipe(call: Call, sandbox: Sandbox, asked: ExecPipe) -> dict[str, Any]:
    """`exec_pipe`: as `exec_stream`, with a first answer that it runs, and its stdin from `input`."""
    process = _running(sandbox._spawn(asked.command, asked.working_dir, env=asked.env, timeout=asked.timeout))
    # The feeder owns stdin from here on: a command that does not read must not hold up its own output.
    stdin, process.stdin = process.stdin, None
    Thread(target=call.inputs.feed, args=(stdin,), daemon=True).start()
    call.piece({"pid": process.pid})
    return _ended(_run(call, process, lambda name, data: call.piece({name: data})))


def _begun(sandbox: Sandbox, asked: Exec) -> Process:
    return _running(
        sandbox._begin(asked.command, asked.working_dir, env=asked.env, input=asked.stdin, timeout=asked.timeout)
    )


def _running(process: Process) -> Process:
    """The same once it runs: only then may the request behind it begin. Raises CommandError."""
    try:
        process.wait_started()
    except BaseException:
        process.close()
        raise
    return process


def terminal(call: Call, sandbox: Sandbox, asked: ExecTty, terminals: Terminals) -> dict[str, Any]:
    """`exec_tty`: as `exec_pipe` on a terminal, whose output is all `stdout`."""
    size = (asked.rows, asked.cols)

    def start() -> Process:
        return sandbox._spawn(asked.command, asked.working_dir, env=asked.env, timeout=asked.timeout, pty=size)

    shown, joined = terminals.join(asked.keep, start)
    if joined:
        shown.process.resize(*size)
    call.runs(shown.process, on_cancel=shown.wake if asked.keep else None)
    Thread(target=call.inputs.feed, args=(shown.keyboard(), _END_OF_INPUT), daemon=True).start()
    call.piece({"pid": shown.process.pid, "joined": joined})
    result = shown.watch(lambda data: call.piece({"stdout": data}), lambda: call.gone or call.cancelled)
    if result is None:
        raise Fault(faults.CANCELLED, "left; the terminal lives on" if asked.keep else "cancelled")
    return _ended(result)


def _run(call: Call, process: Process, take: Callable[[str, bytes], None]) -> ExecResult:
    """Runs to the end, handing over output as it comes."""
    try:
        call.runs(process)
        for chunk in process.chunks():
            take(chunk.stream, chunk.data)
            if call.gone:
                process.kill()
    finally:
        call.inputs.close()
        process.close()
    if call.cancelled:
        raise Fault(faults.CANCELLED, "cancelled")
    assert process.result is not None
    return process.result


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
