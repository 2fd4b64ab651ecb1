"""A tiny host of the guest, independent of `src/`: starts it under bubblewrap and speaks protocol.md with cbor2."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import cbor2

Frame = dict[str, Any]

#: The least that works. CAP_DAC_OVERRIDE is for overlays alone: the kernel's own work directory has mode 000.
CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_DAC_OVERRIDE")
WAIT = 30.0  # how long a test waits for something that must come
ENV = [b"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin"]


class Closed(Exception):
    """The other side has closed the stream."""


@dataclass
class Stream:
    """Frames on a socket, with descriptors where they cross."""

    socket: socket.socket
    fds: list[int] = field(default_factory=list)

    def send(self, frame: Frame, fds: tuple[int, ...] = ()) -> None:
        body = cbor2.dumps(frame | ({"fds": len(fds)} if fds else {}))
        self.send_raw(struct.pack("<I", len(body)) + body, fds)

    def send_raw(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        if fds:
            sent = socket.send_fds(self.socket, [data], list(fds))
            data = data[sent:]
        if data:
            self.socket.sendall(data)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if self.socket.family == socket.AF_UNIX:
                more, fds, _, _ = socket.recv_fds(self.socket, size - len(data), 16)
                self.fds += fds
            else:
                more = self.socket.recv(size - len(data))
            if not more:
                raise Closed
            data += more
        return data

    def receive(self) -> Frame:
        (size,) = struct.unpack("<I", self._exactly(4))
        frame = cbor2.loads(self._exactly(size))
        assert isinstance(frame, dict)
        return frame

    def close(self) -> None:
        self.socket.close()


@dataclass
class Result:
    """How a command ended, and what it wrote."""

    exit: Frame
    out: bytes
    err: bytes

    @property
    def code(self) -> int | None:
        return self.exit.get("code")


@dataclass
class Command:
    """One running command and its line."""

    line: Stream
    stdout: int = -1
    stderr: int = -1
    pid: int = -1

    def started(self) -> Frame:
        frame = self.line.receive()
        self.pid = frame.get("pid", -1)
        return frame

    def wait(self) -> Result:
        out = drain(self.stdout) if self.stdout >= 0 else b""
        err = drain(self.stderr) if self.stderr >= 0 else b""
        frame = self.line.receive()
        self.line.close()
        return Result(frame, out, err)


def drain(fd: int) -> bytes:
    """Everything until the end; the descriptor is closed."""
    with open(fd, "rb", closefd=True) as file:
        return file.read()


def line_pair() -> tuple[Stream, int]:
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT)
    return Stream(ours), theirs.detach()


class Place:
    """One guest, from its start to its end."""

    def __init__(self, process: subprocess.Popen[bytes], stream: Stream) -> None:
        self.process = process
        self.stream = stream
        self.hello: Frame = {}
        self.ready: Frame = {}
        self.kept: list[Command] = []
        self._next = 0

    def setup(self, **keys: Any) -> Frame:
        self.hello = self.stream.receive()
        pidfd = os.pidfd_open(os.getpid())
        self.stream.send({"t": "setup", "walls": True, **keys}, (pidfd,) if not self.hello["framed"] else ())
        os.close(pidfd)
        self.ready = self.stream.receive()
        return self.ready

    def sockets(self) -> dict[str, socket.socket]:
        found = {}
        for name, fd in zip(self.ready["sockets"], self.stream.fds, strict=True):
            if name == "null":
                os.close(fd)
                continue
            found[name] = socket.socket(fileno=fd)
            found[name].setblocking(True)
            found[name].settimeout(WAIT)
        self.stream.fds.clear()
        return found

    def new_id(self) -> int:
        self._next += 1
        return self._next

    def start(self, *argv: str | bytes, stdin: bytes = b"", pty: Frame | None = None, **keys: Any) -> Command:
        """Asks for a command; stdin is what fits a pipe."""
        line, theirs = line_pair()
        request = {
            "t": "exec", "id": self.new_id(), "argv": [os.fsencode(a) for a in argv],
            "env": ENV, "cwd": b"/", **keys,
        }  # fmt: skip
        if pty is not None:
            self.stream.send(request | {"pty": pty}, (theirs,))
            os.close(theirs)
            return Command(line)
        in_r, in_w = os.pipe()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        os.write(in_w, stdin)
        os.close(in_w)
        self.stream.send(request, (theirs, in_r, out_w, err_w))
        for fd in (theirs, in_r, out_w, err_w):
            os.close(fd)
        return Command(line, out_r, err_r)

    def run(self, *argv: str | bytes, **keys: Any) -> Result:
        command = self.start(*argv, **keys)
        frame = command.started()
        if frame["t"] != "started":
            for fd in (command.stdout, command.stderr):
                if fd >= 0:
                    os.close(fd)
            return Result(frame, b"", b"")
        return command.wait()

    def python(self, code: str, *args: str, **keys: Any) -> Result:
        return self.run("/usr/bin/python3", "-c", code, *args, **keys)

    def file(self, op: str, path: str | bytes, **keys: Any) -> tuple[Frame, list[int]]:
        return self.request({"t": "file", "op": op, "path": os.fsencode(path), **keys})

    def request(self, frame: Frame) -> tuple[Frame, list[int]]:
        line, theirs = line_pair()
        self.stream.send({"id": self.new_id(), **frame}, (theirs,))
        os.close(theirs)
        answer = line.receive()
        line.close()
        return answer, line.fds

    def close(self) -> int:
        """Asks it to end, and returns its status."""
        try:
            self.stream.send({"t": "close"})
        except OSError:
            pass
        status = self.process.wait(WAIT)
        self.stream.close()
        return status

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stream.close()
        try:
            self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise


def bwrap(binds: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """A small place: the system read-only, everything else empty."""
    command = ["bwrap", "--unshare-user", "--uid", "0", "--gid", "0", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--unshare-net", "--as-pid-1", "--die-with-parent", "--clearenv"]
    command += ["--cap-drop", "ALL"]  # as root bwrap would leave all of them
    for capability in CAPABILITIES:
        command += ["--cap-add", capability]
    for directory in ("/usr", "/etc"):
        command += ["--ro-bind", directory, directory]
    for link in ("bin", "lib", "lib64", "sbin"):
        command += ["--symlink", f"usr/{link}", f"/{link}"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/room", "--chdir", "/"]
    for source, target in binds:
        command += ["--bind", source, target]
    return command


def launch(
    guest: Path,
    *,
    walls: bool = True,
    framed: bool = False,
    binds: tuple[tuple[str, str], ...] = (),
    leak: tuple[int, ...] = (),
    options: tuple[str, ...] = (),
) -> Place:
    """Starts the guest, in walls or bare."""
    ours, theirs = socket.socketpair()
    command = [*bwrap(binds), *options, "--ro-bind", str(guest), "/guest", "--", "/guest"] if walls else [str(guest)]
    if framed:
        command.append("--framed")
    control = theirs.fileno()
    process = subprocess.Popen(
        ["/bin/bash", "-c", f'exec 3<&{control} {control}<&-; exec "$@"', "sh", *command] if control != 3 else command,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(control, *leak),
    )  # fmt: skip
    theirs.close()
    ours.settimeout(WAIT)
    return Place(process, Stream(ours))


def descendants(pid: int) -> list[int]:
    """A process and all below it, as the host sees them."""
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue  # ended meanwhile
        children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        todo += children.get(one, [])
        found.append(one)
    return found


def pidfds(pids: list[int]) -> list[int]:
    opened = []
    for pid in pids:
        try:
            opened.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue  # ended meanwhile, by itself
    return opened


def pidfds_of_all_in(place: Place) -> list[int]:
    return pidfds(descendants(place.process.pid))


def assert_all_end(everyone: list[int]) -> None:
    for fd in everyone:
        waiting = select.poll()  # `select` takes no descriptor above 1023
        waiting.register(fd, select.POLLIN)
        assert waiting.poll(WAIT * 1000), "a process survived"
        os.close(fd)
