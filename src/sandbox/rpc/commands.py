"""The methods with several answers: commands (exec, exec_stream, exec_pipe, exec_tty, connect) and `dial`.

The `start_*` functions take a sandbox and parameters, and start a command. The other functions connect it to a request:
they send its output as far as the client's credit allows, pass `input` to it, and end it on `cancel`.
"""

from __future__ import annotations

import socket
from threading import Thread
from typing import TYPE_CHECKING, Any

from sandbox.errors import InvalidArgument, SandboxClosed
from sandbox.result import ExecResult, Output
from sandbox.rpc import errors
from sandbox.rpc import messages as m
from sandbox.rpc.call import Call
from sandbox.rpc.errors import Fault

if TYPE_CHECKING:
    from sandbox.guest.process import Process as LocalProcess
    from sandbox.protocols import Process
    from sandbox.sandbox import Sandbox

_PIECE = 2**16

# -- starting


def start(sandbox: Sandbox, asked: m.Exec | m.ExecStream) -> LocalProcess:
    """Starts a command whose whole input is known. Raises CommandError."""
    process = sandbox._begin(asked.command, asked.directory, env=asked.env, input=asked.stdin, timeout=asked.timeout)
    try:
        process.wait_started()  # only then may the next request begin
    except BaseException:
        process.close()
        raise
    return process


def start_pipe(sandbox: Sandbox, asked: m.ExecPipe) -> Process:
    """Starts a command on pipes. Raises CommandError."""
    return sandbox.spawn(asked.command, asked.directory, env=asked.env, timeout=asked.timeout, keep=asked.keep)


def start_terminal(sandbox: Sandbox, asked: m.ExecTty) -> Process:
    """Starts a command on a terminal. Raises CommandError."""
    size = (asked.rows, asked.cols)
    return sandbox.spawn(
        asked.command, asked.directory, env=asked.env, timeout=asked.timeout, pty=size, keep=asked.keep
    )


# -- answering


def exec(call: Call, sandbox: Sandbox, asked: m.Exec) -> dict[str, Any]:
    """`exec`: one answer, with the output up to `max_output` bytes of each stream."""
    output = Output(asked.max_output)
    with start(sandbox, asked) as process:
        call.runs(process, process.kill)
        for chunk in process.chunks():
            if not call.holds(output.keeps(chunk)):
                output.stop()
            output.add(chunk)
            if call.gone:
                process.kill()
    result = output.into(_finished(call, process))
    said = {"stdout": result.stdout_bytes, "stderr": result.stderr_bytes} | ended(result)
    return said | ({"truncated": True} if result.truncated else {})


def exec_stream(call: Call, sandbox: Sandbox, asked: m.ExecStream) -> dict[str, Any]:
    """`exec_stream`: an answer for each piece of output, and a last one with the exit code."""
    call.credit.start(asked.credit)
    with start(sandbox, asked) as process:
        call.runs(process, process.kill)
        _send(call, process)
    return ended(_finished(call, process))


def exec_pipe(call: Call, sandbox: Sandbox, asked: m.ExecPipe) -> dict[str, Any]:
    """`exec_pipe`: as `exec_stream`, but a first answer says that it runs, and `input` is its stdin."""
    call.credit.start(asked.credit)
    return _talk(call, start_pipe(sandbox, asked), kept=asked.keep is not None)


def exec_tty(call: Call, sandbox: Sandbox, asked: m.ExecTty) -> dict[str, Any]:
    """`exec_tty`: as `exec_pipe` on a terminal, whose output is all `stdout`."""
    call.credit.start(asked.credit)
    return _talk(call, start_terminal(sandbox, asked), kept=asked.keep is not None)


def connect(call: Call, sandbox: Sandbox, asked: m.Connect) -> dict[str, Any]:
    """`connect`: joins a kept command, beginning with what it printed last."""
    call.credit.start(asked.credit)
    return _talk(call, sandbox.connect(asked.keep), kept=True)


def _talk(call: Call, process: Process, *, kept: bool) -> dict[str, Any]:
    """Connects a running command to the request until it ends, or until the client leaves a kept one."""
    with process:
        call.runs(process, process.close if kept else process.kill)
        Thread(target=call.inputs.feed, args=(process.write, process.close_stdin), daemon=True).start()
        call.piece({"pid": process.pid, "joined": getattr(process, "joined", False), "tty": process.tty})
        try:
            _send(call, process)
        except SandboxClosed:
            if kept and (call.cancelled or call.gone):
                raise Fault(errors.CANCELLED, "disconnected; the command keeps running") from None
            raise
        finally:
            call.inputs.close()
    return ended(_finished(call, process))


def _send(call: Call, process: Process) -> None:
    for chunk in process.chunks():
        call.output(chunk.stream, chunk.data)
        if call.gone:
            call.cancel()


def _finished(call: Call, process: Process) -> ExecResult:
    if call.cancelled:
        raise Fault(errors.CANCELLED, "cancelled")
    assert process.result is not None
    return process.result


def ended(result: ExecResult) -> dict[str, Any]:
    """The last answer about a command. `signal`, `timed_out`, `out_of_memory` and `note` are there if they apply."""
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


# -- connections to ports inside


def dial(call: Call, sandbox: Sandbox, asked: m.Dial) -> dict[str, Any]:
    """`dial`: answers carry what the port sends (`data`) and its end (`eof`); `input` goes to the port. The last answer
    is `end`.

    Each direction ends separately, as in TCP: after `eof` the port can still read, and after the end of input it can
    still send.
    """
    call.credit.start(asked.credit)
    return _carry(call, sandbox.dial(port=asked.port, address=asked.address))


def view(call: Call, sandbox: Sandbox, asked: m.View) -> dict[str, Any]:
    """`view`: as `dial`, to the screen's VNC server."""
    call.credit.start(asked.credit)
    return _carry(call, sandbox.desktop._look(asked.control))


def gate(call: Call, sandbox: Sandbox, asked: m.Gate) -> dict[str, Any]:
    """`gate`: as `dial`, to what carries tenants' connections; for a client whose `create` told of a gate."""
    from sandbox.network.forwarded_gate import ForwardedGate

    if not isinstance(sandbox._gate_thread, ForwardedGate):
        raise InvalidArgument("this sandbox has its gate here")
    call.credit.start(asked.credit)
    return _carry(call, sandbox._gate_thread.connect())


def _carry(call: Call, connected: socket.socket) -> dict[str, Any]:
    """Passes a connection's bytes on in both directions until it has ended."""
    with connected as line:

        def leave() -> None:
            call.inputs.close()
            _shut(line, socket.SHUT_RDWR)  # wakes a thread that still sends or receives

        call.runs(None, leave)
        feed = (line.sendall, lambda: _shut(line, socket.SHUT_WR))
        feeding = Thread(target=call.inputs.feed, args=feed, daemon=True)
        feeding.start()
        call.piece({"connected": True})
        try:
            if _send_received(call, line) and not call.cancelled:
                call.piece({"eof": True})
                feeding.join()
        finally:
            leave()
    if call.cancelled:
        raise Fault(errors.CANCELLED, "cancelled")
    return {"end": True}


def _send_received(call: Call, line: socket.socket) -> bool:
    """Sends the client what the port sends. Returns True at its end, False when the client takes no more."""
    while not call.gone and (size := call.credit.take(_PIECE)):
        data = line.recv(size)
        if not data:
            return True
        call.piece({"data": data})
        call.credit.add(size - len(data))
    return False


def _shut(line: socket.socket, how: int) -> None:
    try:
        line.shutdown(how)
    except OSError:
        pass  # the other side closed it first
