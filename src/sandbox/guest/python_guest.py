"""A guest in Python, where the C guest does not run (macOS). It speaks `guest/protocol.md` on descriptor 3.

It builds no walls. It is started inside those that the system has made, as is every command that it runs, and it has
no more rights than they have. It has one thread and one poll; child processes do the file operations, so that none
holds up another.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import termios
import time

from sandbox.errors import GuestError, SandboxClosed
from sandbox.guest import frames
from sandbox.guest.python_guest_files import OPERATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 2
CONTROL = 3
UMASK = 0o022
MOST_DESCRIPTORS = 2**18  # more than macOS allows a process by default


class RunningCommand:
    """A command that runs."""

    def __init__(self, line: socket.socket, pid: int, terminal: int, deadline: float | None) -> None:
        self.line = line
        self.pid = pid
        self.terminal = terminal  # the master of its pty, or -1
        self.started = time.monotonic()
        self.deadline = deadline
        self.timed_out = False

    def kill(self) -> None:
        """Kills the command's process group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # it has ended

    def close(self) -> None:
        self.line.close()
        if self.terminal >= 0:
            os.close(self.terminal)


class PythonGuest:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._jobs: dict[int, RunningCommand] = {}  # by the line's descriptor
        self._children: set[int] = set()  # pids of children that do file operations
        self._wake, wake = os.pipe()
        for fd in (self._wake, wake):
            os.set_blocking(fd, False)
            os.set_inheritable(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Sends hello, receives the set-up, and serves until the connection ends."""
        frames.send(self._channel, {"t": "hello", "v": VERSION, "arch": platform.machine(), "framed": False})
        _, fds = frames.receive(self._channel)  # `setup`: the walls are up already
        frames.close_all(fds)
        null = os.open(os.devnull, os.O_RDWR)
        frames.send(self._channel, {"t": "ready", "sockets": ["null"], "have": {}}, [null])
        os.close(null)
        try:
            while self._turn():
                pass
        except (SandboxClosed, GuestError, OSError):
            pass  # the owner has gone, or does not speak the protocol
        finally:
            for job in self._jobs.values():
                job.kill()

    def _turn(self) -> bool:
        poll = select.poll()
        for fd in (self._channel.fileno(), self._wake, *self._jobs):
            poll.register(fd, select.POLLIN)
        deadlines = [job.deadline for job in self._jobs.values() if job.deadline is not None]
        left = max(0.0, min(deadlines) - time.monotonic()) * 1000 if deadlines else None
        for fd, _ in poll.poll(left):
            if fd == self._channel.fileno():
                if not self._request():
                    return False
            elif fd == self._wake:
                os.read(self._wake, 4096)
                self._reap()
            elif fd in self._jobs:
                self._told(self._jobs[fd])
        for job in self._jobs.values():
            if job.deadline is not None and time.monotonic() >= job.deadline:
                job.deadline, job.timed_out = None, True
                job.kill()
        return True

    def _request(self) -> bool:
        message, fds = frames.receive(self._channel)
        kind = message["t"]
        if kind == "close" or not fds:
            frames.close_all(fds)
            return False
        line = socket.socket(fileno=fds.pop(0))
        try:
            if kind == "exec":
                self._run(message, line, fds)
            elif kind == "file":
                self._file(message, line)
            else:
                _answer(line, {"t": "failed", "step": "request", "errno": errno.ENOSYS})
        finally:
            frames.close_all(fds)
        return True

    # -- commands

    def _run(self, message: dict[str, Any], line: socket.socket, stdio: list[int]) -> None:
        master = slave = -1
        try:
            if "pty" in message:
                master, slave = os.openpty()
                _resize(master, message["pty"])
                stdio = [slave] * 3
            told, telling = os.pipe()
            pid = os.fork()
            if pid == 0:
                _become(message, stdio, telling, terminal=slave >= 0)
            os.close(telling)
            with os.fdopen(told, "rb") as failure:
                failed = failure.read()  # ends when the program runs, or with what went wrong
        except OSError as problem:
            _answer(line, {"t": "failed", "step": "fork", "errno": problem.errno or errno.EIO})
            return
        finally:
            if slave >= 0:
                os.close(slave)
        timeout = message.get("timeout_ms")
        job = RunningCommand(line, pid, master, None if timeout is None else time.monotonic() + timeout / 1000)
        if failed:
            os.waitpid(pid, 0)
            step, number = failed.decode().split()
            _answer(line, {"t": "failed", "step": step, "errno": int(number)})
            job.close()
            return
        self._jobs[line.fileno()] = job
        try:
            frames.send(line, {"t": "started", "pid": pid}, [master] if master >= 0 else [])
        except SandboxClosed:
            pass  # whoever asked has gone; the next turn sees the line's end and kills it

    def _told(self, job: RunningCommand) -> None:
        """Handles a message on the command's own line, or the line's end."""
        try:
            message, fds = frames.receive(job.line)
        except (SandboxClosed, GuestError, OSError):
            job.kill()
            del self._jobs[job.line.fileno()]
            job.close()
            self._children.add(job.pid)
            return
        frames.close_all(fds)
        if message["t"] == "cancel":
            job.kill()
        elif message["t"] == "signal":
            try:
                os.killpg(job.pid, int(message["sig"]))
            except (OSError, ValueError):
                pass  # it has ended, or there is no such signal
        elif message["t"] == "resize" and job.terminal >= 0:
            _resize(job.terminal, message)

    def _reap(self) -> None:
        running = {job.pid: job for job in self._jobs.values()}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._children.discard(pid)
            job = running.get(pid)
            if job is None:
                continue
            end = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"code": os.WEXITSTATUS(status)}
            peak = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024
            _answer(
                job.line,
                {
                    "t": "exit",
                    **end,
                    "timed_out": job.timed_out,
                    "wall_us": int((time.monotonic() - job.started) * 1e6),
                    "user_us": int(usage.ru_utime * 1e6),
                    "sys_us": int(usage.ru_stime * 1e6),
                    "maxrss_kb": peak,
                },
            )
            del self._jobs[job.line.fileno()]
            job.close()

    # -- files

    def _file(self, message: dict[str, Any], line: socket.socket) -> None:
        pid = os.fork()
        if pid:
            self._children.add(pid)
            line.close()
            return
        try:
            _answer_file(line, message)
        finally:
            os._exit(0)


def _answer_file(line: socket.socket, message: dict[str, Any]) -> None:
    operation = OPERATIONS.get(message.get("op"))
    try:
        if operation is None or b"\0" in message["path"]:
            raise OSError(errno.EINVAL, "")
        answer, fds = operation(message)
        frames.send(line, {"t": "done", **answer}, fds)
    except OSError as problem:
        frames.send(line, {"t": "failed", "step": "file", "errno": problem.errno or errno.EIO})


def _become(message: dict[str, Any], stdio: list[int], telling: int, *, terminal: bool) -> None:
    """In the child: runs the command, or reports why it cannot."""
    step = "exec"
    environment: dict[bytes, bytes] = {}
    try:
        os.setsid()
        if terminal:
            fcntl.ioctl(stdio[0], termios.TIOCSCTTY, 0)
        # First moved above 0–2, so that none is overwritten before it is copied.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in stdio]
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.umask(int(message.get("umask", UMASK)))
        step = "chdir"
        os.chdir(message["cwd"])
        step = "exec"
        environment = dict(one.split(b"=", 1) for one in message.get("env", []))
        os.execvpe(message["argv"][0], message["argv"], environment)
    except OSError as problem:
        hidden = step == "exec" and problem.errno == errno.EACCES and not _is_there(message["argv"][0], environment)
        os.write(telling, f"{step} {errno.ENOENT if hidden else problem.errno}".encode())
    except Exception:  # noqa: BLE001 - a request that makes no sense; nothing may leave this function
        os.write(telling, f"{step} {errno.EINVAL}".encode())
    finally:
        os._exit(127)


def _is_there(program: bytes, environment: dict[bytes, bytes]) -> bool:
    """Whether the program exists. A directory that cannot be searched (another user's home) does not count."""
    if b"/" in program:
        return True
    places = environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    return any(os.path.lexists(os.path.join(place, program)) for place in places)


def _resize(terminal: int, size: dict[str, Any]) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", int(size["rows"]), int(size["cols"]), 0, 0))


def _answer(line: socket.socket, message: dict[str, object]) -> None:
    try:
        frames.send(line, message)
    except SandboxClosed:
        pass  # nobody waits for it any more


def _keep_to_ourselves() -> None:
    """Keeps tenants from inheriting the owner's open descriptors, and the control socket."""
    os.closerange(CONTROL + 1, min(os.sysconf("SC_OPEN_MAX"), MOST_DESCRIPTORS))
    os.set_inheritable(CONTROL, False)


def main() -> None:
    _keep_to_ourselves()
    PythonGuest(socket.socket(fileno=CONTROL)).serve()
