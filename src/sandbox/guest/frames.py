"""Frames with descriptors over a stream socket: `guest/protocol.md`, "Frames"."""

from __future__ import annotations

import errno
import os
import sys
from _struct import pack, unpack

from sandbox import sockets as socket
from sandbox.errors import GuestError, SandboxClosed
from sandbox.guest import cbor

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Iterable, Sequence
    from typing import Any

LARGEST = 4 * 2**20
MOST_FDS = 64
_CLOEXEC = socket.MSG_CMSG_CLOEXEC if sys.platform == "linux" else 0
BROKEN = "broken"  # sent by our own end of a framed connection (`bridge.py`) when the guest broke the protocol


def send(sock: _socket.socket, message: dict[str, object], fds: Sequence[int] = ()) -> None:
    """Sends one frame; `fds` travel with its first byte, and the caller still has to close them.

    Raises SandboxClosed when the other side is gone, GuestError when the frame would be too large or the kernel
    allows no more descriptors in transit.
    """
    if fds:
        message["fds"] = len(fds)
    body = cbor.encode(message)
    if len(body) > LARGEST:
        raise GuestError(
            "a request of {value} bytes; at most {largest} fit (shorten arguments or environment)",
            value=len(body),
            largest=LARGEST,
        )
    frame = memoryview(pack("<I", len(body)) + body)
    try:
        if fds:
            sent = sock.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pack(f"{len(fds)}i", *fds))])
            frame = frame[sent:]
        if frame:  # sending nothing to a guest that has answered and ended would fail, and lose its answer
            sock.sendall(frame)
    except OSError as problem:
        if problem.errno == errno.ETOOMANYREFS:  # nothing was sent
            raise GuestError(
                "too many descriptors are on their way in this user's sockets: a tenant, or another program, holds them"
            ) from problem
        raise SandboxClosed("the sandbox has ended") from problem


def receive(sock: _socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next frame and the descriptors that came with it, which the caller has to close.

    Raises SandboxClosed at the end of the stream, GuestError for anything the protocol does not allow.
    """
    head, fds = _exactly(sock, 4, with_fds=True)
    try:
        (length,) = unpack("<I", head)
        check_length(length)
        body, _ = _exactly(sock, length)
        message = parse(body)
        if message["t"] == BROKEN:
            raise GuestError(str(message.get("reason")))
        if message.get("fds", 0) != len(fds):
            raise GuestError("the guest sent other descriptors than it said")
    except BaseException:
        close_all(fds)
        raise
    return message, fds


def check_length(length: int) -> None:
    """Raises GuestError for a frame that is too large, or empty."""
    if not 0 < length <= LARGEST:
        raise GuestError("the guest sent a frame of {length} bytes", length=length)


def parse(body: bytes) -> dict[str, Any]:
    """The message in a frame. Raises GuestError."""
    try:
        message = cbor.decode(body)
    except cbor.Malformed as problem:
        raise GuestError("the guest sent a broken frame: {problem}", problem=problem) from None
    if not isinstance(message, dict) or not isinstance(message.get("t"), str):
        raise GuestError("the guest sent a frame without a type")
    return message


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def sender_pid(sock: _socket.socket) -> int:
    """The pid of the next frame's sender, in our own namespace. It comes from the kernel, not from the sender.

    SO_PASSCRED must be on. Raises SandboxClosed when no frame will come.
    """
    try:
        _, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(12), socket.MSG_PEEK)
    except ConnectionError as problem:  # it ended without reading what we sent
        raise SandboxClosed("the sandbox has ended") from problem
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(unpack("iii", data)[0])
    raise SandboxClosed("the sandbox has ended")


def _exactly(sock: _socket.socket, size: int, with_fds: bool = False) -> tuple[bytes, list[int]]:
    fds: list[int] = []
    data = bytearray()
    while len(data) < size:
        try:
            if with_fds and not data:
                part, fds = receive_some(sock, size)
            else:
                part = sock.recv(min(size - len(data), 2**18))
        except ConnectionError as problem:
            raise SandboxClosed("the sandbox has ended") from problem
        if not part:
            close_all(fds)
            raise SandboxClosed("the sandbox has ended")
        data += part
    return bytes(data), fds


def receive_some(sock: _socket.socket, size: int) -> tuple[bytes, list[int]]:
    """At most `size` bytes, and the descriptors that came with them. Raises GuestError when those are too many."""
    # Not socket.recv_fds: it drops its flags, and the descriptors would be inherited by the next program started.
    part, ancillary, flags, _ = sock.recvmsg(size, socket.CMSG_SPACE(MOST_FDS * 4), _CLOEXEC)
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    if not _CLOEXEC:
        for fd in fds:
            os.set_inheritable(fd, False)
    if flags & socket.MSG_CTRUNC:
        close_all(fds)
        raise GuestError("the guest sent too many descriptors")
    return part, fds
