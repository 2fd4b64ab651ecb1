"""The other half of a virtio-vsock device, in a process beside QEMU (vhost-user), with Unix sockets as Firecracker has
them at its host's end: `CONNECT port`, `OK port`, and then bytes. Standard library alone: it runs inside a room."""

from __future__ import annotations

import array
import mmap
import os
import selectors
import socket
import struct
from typing import Any

HOST, GUEST = 2, 3
REQUEST, RESPONSE, RST, SHUTDOWN, RW, CREDIT_UPDATE, CREDIT_REQUEST = range(1, 8)
HEADER = struct.Struct("<QQIIIHHIII")
BUFFER = 1 << 18  # what a connection holds for the host
FEATURES = 1 << 32 | 1 << 30  # version 1, protocol features
PROTOCOL = 1 << 3 | 1 << 9  # acknowledgements, configuration
NEXT, WRITE = 1, 2


class Ring:
    """One virtqueue."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = self.desc = self.avail = self.used = self.last = 0
        self.kick = self.call = -1
        self.enabled = False
        self.told = False  # something was used, and nobody was told

    def ready(self) -> bool:
        return bool(self.desc) and self.kick >= 0

    def chain(self) -> tuple[int, list[tuple[int, int, int]]] | None:
        """The next chain of buffers: its number, and of each buffer its address, size and flags."""
        index = struct.unpack("<H", self._memory.host(self.avail + 2, 2))[0]
        if not self.ready() or index == self.last & 0xFFFF:
            return None
        (head,) = struct.unpack("<H", self._memory.host(self.avail + 4 + 2 * (self.last % self.size), 2))
        self.last += 1
        parts, at = [], head
        while True:
            address, size, flags, following = struct.unpack("<QIHH", self._memory.host(self.desc + 16 * at, 16))
            parts.append((address, size, flags))
            if not flags & NEXT:
                return head, parts
            at = following

    def give_back(self, head: int, size: int) -> None:
        (index,) = struct.unpack("<H", self._memory.host(self.used + 2, 2))
        self._memory.put_host(self.used + 4 + 8 * (index % self.size), struct.pack("<II", head, size))
        self._memory.put_host(self.used + 2, struct.pack("<H", (index + 1) & 0xFFFF))
        self.told = True

    def tell(self) -> None:
        if self.told and self.call >= 0:
            os.write(self.call, struct.pack("<Q", 1))
        self.told = False


class Memory:
    """The machine's memory, by its own addresses and by QEMU's."""

    def __init__(self) -> None:
        self._regions: list[tuple[int, int, int, mmap.mmap, int]] = []

    def replace(self, regions: list[tuple[int, int, int, int]], fds: list[int]) -> None:
        self._regions = []
        for (guest, size, user, offset), fd in zip(regions, fds, strict=True):
            self._regions.append((guest, size, user, mmap.mmap(fd, size + offset), offset))
            os.close(fd)

    def _find(self, address: int, which: int) -> tuple[mmap.mmap, int]:
        for guest, size, user, memory, offset in self._regions:
            start = (guest, user)[which]
            if start <= address < start + size:
                return memory, address - start + offset
        raise ValueError(hex(address))

    def host(self, address: int, size: int) -> bytes:
        memory, at = self._find(address, 1)
        return memory[at : at + size]

    def put_host(self, address: int, data: bytes) -> None:
        memory, at = self._find(address, 1)
        memory[at : at + len(data)] = data

    def guest(self, address: int, size: int) -> bytes:
        memory, at = self._find(address, 0)
        return memory[at : at + size]

    def put_guest(self, address: int, data: bytes | memoryview) -> None:
        memory, at = self._find(address, 0)
        memory[at : at + len(data)] = bytes(data)


def _of_size(packet: bytes, size: int) -> bytes:
    fields = list(HEADER.unpack(packet))
    fields[4] = size
    return HEADER.pack(*fields)


class Connection:
    def __init__(self, stream: socket.socket, port: int) -> None:
        self.stream = stream
        self.port = port  # the host's
        self.guest_port = 0
        self.line = b""
        self.open = False
        self.ended = False  # the host has nothing more to say
        self.sent = self.taken = 0  # what we sent, and what the guest has used of it
        self.room = 0  # the guest's
        self.used = self.said = 0  # what the host has taken of the guest's, and what the guest knows of that
        self.waiting = bytearray()  # for the host


class Vsock:
    """Serves QEMU on one Unix socket and hosts on another, until the process ends."""

    def __init__(self, backend: socket.socket, path: str) -> None:
        self._memory = Memory()
        self._rings = [Ring(self._memory) for _ in range(3)]
        self._loop = selectors.DefaultSelector()
        self._packets: list[tuple[bytes, bytes]] = []
        self._connections: dict[tuple[int, int], Connection] = {}
        self._next = 1 << 30
        self._wake, self._waking = os.pipe()
        self._loop.register(self._wake, selectors.EVENT_READ, lambda: os.read(self._wake, 1))
        self._backend = backend
        self._loop.register(backend, selectors.EVENT_READ, self._accept_qemu)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(16)
        self._loop.register(listening, selectors.EVENT_READ, lambda: self._accept_host(listening))

    def run(self) -> None:
        while True:
            for key, _ in self._loop.select():
                key.data()
            self._deliver()
            for ring in self._rings:
                ring.tell()

    # -- QEMU

    def _accept_qemu(self) -> None:
        stream, _ = self._backend.accept()
        self._loop.register(stream, selectors.EVENT_READ, lambda: self._message(stream))

    def _message(self, stream: socket.socket) -> None:
        head, ancillary, _, _ = stream.recvmsg(12, socket.CMSG_SPACE(64))
        if len(head) < 12:
            self._loop.unregister(stream)
            return
        kind, flags, size = struct.unpack("<III", head)
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data[: len(data) - len(data) % 4])
        body = b""
        while len(body) < size:
            body += stream.recv(size - len(body))
        answer = self._asked(kind, body, list(fds))
        if answer is None and flags & 8:
            answer = struct.pack("<Q", 0)
        if answer is not None:
            stream.sendall(struct.pack("<III", kind, 5, len(answer)) + answer)

    def _asked(self, kind: int, body: bytes, fds: list[int]) -> bytes | None:
        if kind == 1:
            return struct.pack("<Q", FEATURES)
        if kind == 15:
            return struct.pack("<Q", PROTOCOL)
        if kind == 17:
            return struct.pack("<Q", 3)
        if kind == 24:  # the configuration: which machine this is
            offset, size, _ = struct.unpack_from("<III", body)
            return body[:12] + struct.pack("<Q", GUEST)[offset : offset + size].ljust(len(body) - 12, b"\0")
        if kind == 5:
            (count,) = struct.unpack_from("<I", body)
            self._memory.replace([struct.unpack_from("<4Q", body, 8 + 32 * at) for at in range(count)], fds)
            return None
        if 8 <= kind <= 14 or kind == 18:
            return self._ring(kind, body, fds)
        return None

    def _ring(self, kind: int, body: bytes, fds: list[int]) -> bytes | None:
        ring = self._rings[struct.unpack_from("<I", body)[0] & 0xFF]
        if kind == 9:
            ring.desc, ring.used, ring.avail = struct.unpack_from("<3Q", body, 8)
        elif kind in (8, 10):
            (number,) = struct.unpack_from("<I", body, 4)
            ring.size, ring.last = (number, ring.last) if kind == 8 else (ring.size, number)
        elif kind == 11:
            self._stop(ring)
            return struct.pack("<II", struct.unpack_from("<I", body)[0], ring.last & 0xFFFF)
        elif kind == 12:
            self._stop(ring)
            ring.kick = fds[0]
            self._loop.register(ring.kick, selectors.EVENT_READ, lambda: self._kicked(ring))
            self._kicked(ring, False)
        elif kind == 13 and fds:
            ring.call = fds[0]
        return None

    def _stop(self, ring: Ring) -> None:
        if ring.kick >= 0:
            self._loop.unregister(ring.kick)
            os.close(ring.kick)
            ring.kick = -1

    def _kicked(self, ring: Ring, read: bool = True) -> None:
        if read:
            os.read(ring.kick, 8)
        if ring is self._rings[1]:
            while (found := ring.chain()) is not None:
                head, parts = found
                data = b"".join(self._memory.guest(address, size) for address, size, _ in parts)
                ring.give_back(head, 0)
                self._heard(HEADER.unpack_from(data), data[HEADER.size :])

    # -- packets

    def _heard(self, head: tuple[Any, ...], data: bytes) -> None:
        _, _, guest_port, port, size, _, operation, flags, room, taken = head
        one = self._connections.get((port, guest_port))
        if one is None:
            if operation != RST:
                self._send(RST, port, guest_port)
            return
        one.room, one.taken = room, taken
        if operation == RESPONSE:
            one.open = True
            one.waiting += b"OK %d\n" % one.port
        elif operation == RW:
            one.waiting += data[:size]
            one.used += size
        elif operation in (RST, SHUTDOWN) and (operation == RST or flags & 3 == 3):
            if operation == SHUTDOWN:
                self._send(RST, one.port, one.guest_port)
            self._flush(one)
            self._close(one)
            return
        self._flush(one)
        if operation == CREDIT_REQUEST or one.used - one.said > BUFFER // 2:
            self._send(CREDIT_UPDATE, one.port, one.guest_port)
        self._watch(one)

    def _send(self, operation: int, port: int, guest_port: int, data: bytes = b"", flags: int = 0) -> None:
        one = self._connections.get((port, guest_port))
        used = one.used - len(one.waiting) if one else 0
        if one:
            one.said = used
        head = HEADER.pack(HOST, GUEST, port, guest_port, len(data), 1, operation, flags, BUFFER, max(0, used))
        self._packets.append((head, data))

    def _deliver(self) -> None:
        """As many packets as the guest has buffers for."""
        ring = self._rings[0]
        while self._packets and ring.ready() and (found := ring.chain()) is not None:
            head, parts = found
            packet, data = self._packets.pop(0)
            most = sum(size for _, size, _ in parts) - HEADER.size
            if len(data) > most:  # the rest is a packet of its own
                self._packets.insert(0, (_of_size(packet, len(data) - most), data[most:]))
                packet, data = _of_size(packet, most), data[:most]
            whole, put = memoryview(packet + data), 0
            for address, size, _ in parts:
                piece = whole[put : put + size]
                self._memory.put_guest(address, piece)
                put += len(piece)
            ring.give_back(head, put)
        for one in list(self._connections.values()):
            self._watch(one)

    # -- hosts

    def _accept_host(self, listening: socket.socket) -> None:
        stream, _ = listening.accept()
        one = Connection(stream, self._next)
        self._next += 1
        self._loop.register(stream, selectors.EVENT_READ, lambda: self._said(one))

    def _said(self, one: Connection) -> None:
        self._flush(one)
        if one.stream.fileno() < 0:
            return
        if not one.guest_port:
            return self._asked_for_port(one)
        left = one.room - (one.sent - one.taken) & 0xFFFFFFFF
        if not one.open or one.ended or left <= 0 or len(self._packets) > 64:
            return self._watch(one)
        try:
            data = one.stream.recv(min(left, 1 << 16), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            one.sent = one.sent + len(data) & 0xFFFFFFFF
            self._send(RW, one.port, one.guest_port, data)
        else:
            one.ended = True
            self._send(SHUTDOWN, one.port, one.guest_port, flags=3)
        self._watch(one)

    def _asked_for_port(self, one: Connection) -> None:
        byte = one.stream.recv(1)
        one.line += byte
        if byte and not one.line.endswith(b"\n"):
            return
        self._loop.unregister(one.stream)
        word, _, port = one.line.strip().partition(b" ")
        if word != b"CONNECT" or not port.isdigit():
            one.stream.close()
            return
        one.guest_port = int(port)
        self._connections[one.port, one.guest_port] = one
        self._send(REQUEST, one.port, one.guest_port)

    def _flush(self, one: Connection) -> None:
        while one.waiting:
            try:
                sent = one.stream.send(one.waiting, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                one.waiting.clear()
                return
            del one.waiting[:sent]
            if one.used - len(one.waiting) - one.said > BUFFER // 2:
                self._send(CREDIT_UPDATE, one.port, one.guest_port)

    def _watch(self, one: Connection) -> None:
        if one.stream.fileno() < 0 or not one.guest_port:
            return
        left = one.room - (one.sent - one.taken) & 0xFFFFFFFF
        wanted = selectors.EVENT_WRITE if one.waiting else 0
        if one.open and not one.ended and left and len(self._packets) <= 64:
            wanted |= selectors.EVENT_READ
        known = self._loop.get_map().get(one.stream)
        if not wanted:
            if known is not None:
                self._loop.unregister(one.stream)
        elif known is None:
            self._loop.register(one.stream, wanted, lambda: self._said(one))
        elif known.events != wanted:
            self._loop.modify(one.stream, wanted, lambda: self._said(one))

    def _close(self, one: Connection) -> None:
        self._connections.pop((one.port, one.guest_port), None)
        if self._loop.get_map().get(one.stream) is not None:
            self._loop.unregister(one.stream)
        one.stream.close()
