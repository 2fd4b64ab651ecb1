"""Runs inside a sandbox, as its tenant: a hostile machine, speaking to the file server (guest/share.c) by hand.

`share_client.py SEED` prints one line of JSON: what was found wrong. It uses the standard library alone.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import subprocess
import sys

HEADER = struct.Struct("=IIQQIIII")
ANSWER = struct.Struct("=IiQ")
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, OPENDIR, CREATE, INTERRUPT = 1, 2, 3, 14, 15, 26, 27, 35, 36
RENAME2, BATCH_FORGET, READDIRPLUS, LINK, SYMLINK, MKDIR, WRITE = 45, 42, 44, 13, 6, 9, 16
SILENT = (FORGET, BATCH_FORGET, INTERRUPT)
NUMBERS = (0, 1, 2, 3, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


class Server:
    """One file server, and the machine's end of its streams."""

    def __init__(self) -> None:
        self.stream, theirs = socket.socketpair()
        self.disk, their_disk = socket.socketpair()
        self.control, their_control = socket.socketpair()
        ends = [one.fileno() for one in (theirs, their_disk, their_control)]
        self.process = subprocess.Popen(["./guest", "--share"], stdin=ends[0], stdout=ends[1], stderr=ends[2])
        for one in (theirs, their_disk, their_control):
            one.close()
        for one in (self.stream, self.disk):
            one.settimeout(30)
        self._agree()
        self.unique = 0

    def _agree(self) -> None:
        receive(self.disk, 18)
        self.disk.sendall(struct.pack(">IQII", 0, 0x49484156454F5054, 7, 0))
        for _ in range(3):
            *_, size = struct.unpack(">QIII", receive(self.disk, 20))
            receive(self.disk, size)

    def send(self, opcode: int, node: int, body: bytes, length: int | None = None) -> int:
        self.unique += 1
        size = HEADER.size + len(body) if length is None else length
        self.stream.sendall(HEADER.pack(size, opcode, self.unique, node, 0, 0, 1, 0) + body)
        return self.unique

    def ask(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
        """The error (0 or negative) and the answer. Notices, which have no number, are passed over."""
        wanted = self.send(opcode, node, body)
        while True:
            length, error, unique = ANSWER.unpack(receive(self.stream, ANSWER.size))
            rest = receive(self.stream, length - ANSWER.size)
            if unique == wanted:
                return error, rest

    def alive(self) -> bool:
        return self.ask(GETATTR, 1, bytes(16))[0] == 0

    def node(self, parent: int, name: bytes) -> int:
        error, answer = self.ask(LOOKUP, parent, name + b"\0")
        return 0 if error else int.from_bytes(answer[:8], sys.byteorder)

    def end(self) -> int:
        self.stream.close()
        self.disk.close()
        return self.process.wait(30)


def receive(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def project(server: Server) -> int:
    node = 1
    for part in os.getcwd().split("/")[1:]:
        node = server.node(node, os.fsencode(part))
    return node


def begin() -> tuple[Server, int]:
    server = Server()
    assert server.ask(INIT, 0, struct.pack("=IIII", 7, 36, 1 << 17, 0xFFFFFFFF) + bytes(48))[0] == 0
    here = project(server)
    assert here and server.node(here, b"file") and server.alive()
    return server, here


def names_that_lead_elsewhere(wrong: list[str]) -> None:
    """A name is one component: nothing with a slash, no `.` or `..`, nothing too long, wherever names are taken."""
    server, here = begin()
    bad = (b"..", b".", b"", b"../outside", b"a/b", b"/etc/passwd", b"x" * 256, b"x" * 70000)
    for name in bad:
        for opcode, body in (
            (LOOKUP, name + b"\0"),
            (MKDIR, struct.pack("=II", 0o755, 0) + name + b"\0"),
            (CREATE, struct.pack("=IIII", os.O_CREAT | os.O_WRONLY, 0o644, 0, 0) + name + b"\0"),
            (SYMLINK, name + b"\0target\0"),
            (LINK, struct.pack("=Q", server.node(here, b"file")) + name + b"\0"),
            (RENAME2, struct.pack("=QII", here, 0, 0) + b"file\0" + name + b"\0"),
            (RENAME2, struct.pack("=QII", here, 0, 0) + name + b"\0" + b"new\0"),
            (RENAME2, struct.pack("=QII", 1, 2, 0) + b"file\0" + name + b"\0"),
            (LOOKUP, name + b"x"),  # without an end
        ):
            if server.ask(opcode, here, body)[0] == 0:
                wrong.append(f"operation {opcode} took {name[:20]!r}")
    if not server.alive():
        wrong.append("it does not answer after bad names")
    server.end()


def links_are_never_followed(wrong: list[str]) -> None:
    """Not even when one takes a directory's place between a look-up and its use."""
    server, here = begin()
    directory = server.node(here, b"directory")
    os.rename("directory", "moved")
    os.symlink("/etc", "directory")
    if server.node(directory, b"passwd"):
        wrong.append("a directory that became a link was followed")
    if server.ask(OPEN, server.node(here, b"directory"), struct.pack("=II", 0, 0))[0] == 0:
        wrong.append("a link was opened")
    os.unlink("directory")
    os.rename("moved", "directory")
    file = server.node(here, b"file")
    os.rename("file", "kept")
    os.symlink("/etc/passwd", "file")
    if server.ask(OPEN, file, struct.pack("=II", 0, 0))[0] == 0:
        wrong.append("a file that became a link was opened")
    os.rename("kept", "file")
    for name in (b"proc", b"sys"):
        closed = server.node(1, name)
        if closed and server.node(closed, b"self"):
            wrong.append(f"{name!r} is shown")
    server.end()


def noise(wrong: list[str], seed: int) -> None:
    """Any operation, with any numbers: an error, or an answer; never a crash, and never more than was asked for."""
    source = random.Random(seed)
    server, here = begin()
    numbers = [*NUMBERS, here, server.node(here, b"file")]
    for _ in range(1500):
        opcode = source.choice((*range(1, 53), 4096, 1 << 31))
        body = b"".join(struct.pack("=Q", source.choice(numbers)) for _ in range(source.randrange(0, 12)))
        body += source.choice((b"", b"file\0", b"\0", b"new\0file\0", source.randbytes(source.randrange(0, 60))))
        if opcode in (21, 32, 33):  # waiting for a lock is answered when it is had
            continue
        if opcode in SILENT:
            server.send(opcode, source.choice(numbers), body)
            continue
        error, answer = server.ask(opcode, source.choice(numbers), body)
        if error > 0 or error < -4096 or len(answer) > 1 << 20:
            wrong.append(f"operation {opcode} answered {error}, {len(answer)} bytes")
    if not server.alive():
        wrong.append("it does not answer after noise")
    if (status := server.end()) not in (0, 1):
        wrong.append(f"it ended by {status}")


def lengths_that_lie(wrong: list[str]) -> None:
    """A stream that cannot be understood any more is the end, at once and in order."""
    for length in (0, 1, 39, 1 << 21, (1 << 32) - 1):
        server, _ = begin()
        server.send(LOOKUP, 1, b"x\0", length)
        if server.process.wait(30) not in (0, 1):
            wrong.append(f"a length of {length} ended it by {server.process.returncode}")
    for kind, offset, size in (
        (0, 0, 1 << 31),
        (0, (1 << 62) - 1, 4096),
        (1, 0, 1 << 30),
        (0, 1 << 61, 4096),
        (9, 0, 0),
    ):
        server, _ = begin()
        server.disk.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, 1, offset, size))
        server.disk.shutdown(socket.SHUT_WR)
        if server.process.wait(30) not in (0, 1):
            wrong.append(f"disk request {kind} {offset} {size} ended it by {server.process.returncode}")
    for body in (b"", b"x" * 39, HEADER.pack(1 << 20, LOOKUP, 1, 1, 0, 0, 0, 0), HEADER.pack(3, 1, 1, 1, 0, 0, 0, 0)):
        server, _ = begin()
        server.disk.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 1, 1, 0, len(body)) + body)
        server.disk.shutdown(socket.SHUT_WR)
        if server.process.wait(30) not in (0, 1):
            wrong.append(f"a request of {len(body)} bytes by the disk ended it by {server.process.returncode}")


def main() -> None:
    wrong: list[str] = []
    names_that_lead_elsewhere(wrong)
    links_are_never_followed(wrong)
    lengths_that_lie(wrong)
    noise(wrong, int(sys.argv[1]))
    print(json.dumps(wrong))


main()
