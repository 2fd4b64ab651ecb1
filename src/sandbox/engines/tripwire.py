"""Covers of what appeared later that tell who touched them: FUSE, on top of the kernel's own cover.

Each tripwire is a FUSE file system whose root *is* the covered file or directory. It answers two questions, what is it
(nothing anybody may open) and may I open it (no), and the second one is told. If we are slow or gone the tenant
waits or gets an error: the file is behind the cover beneath in any case. What is not covered never comes this way.

Armed by the vigil, from outside, where /dev/fuse can be opened; elsewhere covers are silent (docs/limits.md). For
what is there at the start the guest answers: `alarms.py`.
"""

from __future__ import annotations

import errno
import os
import time
from struct import Struct

from sandbox.engines import entering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "/dev/fuse"
MOST = 64  # each holds a descriptor; further covers stay silent ones
QUIET = 1.0  # seconds in which further touches of the same cover are only counted: a loop must not fill the record

_IN = Struct("<IIQQIIII")
_OUT = Struct("<IiQ")
_INIT_IN = Struct("<II")
_INIT_OUT = Struct("<IIIIHHIIHHI28x")
_ATTR_OUT = Struct("<QIIQQQQQQIIIIIIIIII")
LOOKUP, FORGET, GETATTR, OPEN, INIT, OPENDIR, ACCESS, INTERRUPT, DESTROY, BATCH_FORGET = (
    1, 2, 3, 14, 26, 27, 34, 36, 38, 42,
)  # fmt: skip
TOLD = {OPEN: "open", OPENDIR: "list", LOOKUP: "open"}


class Tripwires:
    """The armed covers of one sandbox. `tell(path, operation, pid, count)` hears of touches."""

    def __init__(self, tell: Callable[[str, str, int, int], object]) -> None:
        self._tell = tell
        self._wires: dict[int, tuple[str, bool]] = {}
        self._touched: dict[str, tuple[float, int]] = {}

    @staticmethod
    def possible() -> bool:
        """Whether this user may open the FUSE device."""
        return os.access(DEVICE, os.R_OK | os.W_OK)

    def arm(self, namespace: int, paths: dict[str, bool]) -> list[int]:
        """Puts wires on covered paths (path -> whether it is a directory); returns the descriptors to listen on."""
        chosen = dict(list(paths.items())[: MOST - len(self._wires)])
        armed = []
        for path, fd in entering.arm(namespace, chosen):
            self._wires[fd] = path, chosen[path]
            armed.append(fd)
        return armed

    def close(self) -> None:
        for fd in self._wires:
            os.close(fd)
        self._wires.clear()

    def answer(self, fd: int) -> bool:
        """Answers one request; False when the wire is gone."""
        try:
            data = os.read(fd, 2**17)
        except BlockingIOError:
            return True
        except OSError:
            return False
        _, opcode, unique, _, _, _, pid, _ = _IN.unpack_from(data)
        path, is_dir = self._wires[fd]
        if opcode in TOLD:  # before the answer: whoever asks is still there to be named
            below = data[_IN.size :].split(b"\0", 1)[0] if opcode == LOOKUP else b""
            self._touch(os.path.join(path, os.fsdecode(below)) if below else path, TOLD[opcode], pid)
        reply = self._reply(opcode, data, is_dir)
        if reply is not None:
            problem, body = reply
            try:
                os.write(fd, _OUT.pack(_OUT.size + len(body), -problem, unique) + body)
            except OSError:
                pass  # whoever asked has gone
        return True

    def _reply(self, opcode: int, data: bytes, is_dir: bool) -> tuple[int, bytes] | None:
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT, DESTROY):
            return None
        if opcode == INIT:
            major, minor = _INIT_IN.unpack_from(data, _IN.size)
            return 0, _INIT_OUT.pack(major, min(minor, 31), 0, 0, 0, 0, 4096, 1, 1, 0, 0)
        if opcode == GETATTR:
            kind = 0o040000 if is_dir else 0o100000
            return 0, _ATTR_OUT.pack(1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, kind, 1, 0, 0, 0, 512, 0)
        return errno.EACCES, b""

    def _touch(self, path: str, operation: str, pid: int) -> None:
        now = time.monotonic()
        last, count = self._touched.get(path, (-QUIET, 0))
        if now - last < QUIET:
            self._touched[path] = last, count + 1
        else:
            self._touched[path] = now, 0
            self._tell(path, operation, pid, count + 1)
