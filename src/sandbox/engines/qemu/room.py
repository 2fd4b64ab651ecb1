"""What a machine needs of the room around it: QEMU and the file server as its tenants."""

from __future__ import annotations

import array
import os
import socket

from sandbox.engines.qemu.command import DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.engines.base import Running
    from sandbox.guest.process import Process

GUEST = f"{DIRECTORY}/guest"


def start_qemu(room: Running, words: Sequence[str], fds: Sequence[int]) -> tuple[Process, int]:
    """Starts QEMU with `fds`. Returns its process, and the end of a pipe with what it prints as errors."""
    ours, theirs = socket.socketpair()
    try:
        process, errors = _start(room, [GUEST, "--launch", *words], theirs.fileno())
        ours.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        return process, errors
    finally:
        ours.close()
        theirs.close()


def start_file_server(room: Running, stream: socket.socket, fixed: Sequence[str]) -> tuple[Process, int]:
    """Serves the room's files on `stream`. `fixed` are directories that nothing on the host changes meanwhile."""
    return _start(room, [GUEST, "--share", *fixed], stream.fileno())


def _start(room: Running, words: Sequence[str], stdin: int) -> tuple[Process, int]:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    errors, theirs = os.pipe()
    request: dict[str, object] = {"argv": [os.fsencode(word) for word in words], "env": [], "cwd": b"/"}
    try:
        return room.start(request, words[1], (stdin, null, theirs)), errors
    except BaseException:
        os.close(errors)
        raise
    finally:
        os.close(null)
        os.close(theirs)
