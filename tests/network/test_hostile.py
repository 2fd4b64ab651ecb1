"""Tenants that send garbage, floods or nothing: bounded memory, a clear record, no effect on anybody else."""

from __future__ import annotations

import os
import resource
import socket
import threading

import pytest

from sandbox.network.gate import acceptor
from tests.network.room import LOCAL, Listen, Origin, Walled, Walls, echo
from tests.patience import assert_given_back, open_descriptors

pytestmark = pytest.mark.walls


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def broken(room: Walled) -> list[dict[str, object]]:
    return [one for one in room.heard.records if one["type"] == "fetch_proxy_error"]


def test_a_flood_of_ten_thousand_connections_is_bounded_and_affects_nobody_else(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    neighbour = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    ask = f"curl -sS http://good.test:{origin.port}/fine"
    assert "GET /fine" in room.run(ask).stdout
    before, descriptors = resident(), open_descriptors()
    flood = """
import socket
total = 0
while total < 10000:
    held = []
    for _ in range(500):
        s = socket.socket(); s.setblocking(False)
        try: s.connect(('192.0.43.8', 80 + total % 7))
        except BlockingIOError: pass
        held.append(s); total += 1
    for s in held: s.close()
print(total)"""
    with room.sandbox.spawn(["/usr/bin/python3", "-c", flood]) as process:
        assert "GET /fine" in neighbour.run(ask).stdout
        assert process.wait(600).exit_code == 0  # emulated, on a busy machine
    assert "GET /fine" in room.run(ask).stdout
    assert resident() - before < 64 << 20
    assert_given_back(descriptors + 199)
    assert not broken(room)
    refused = [one for one in room.heard.records if one["result"] == "blocked"]
    assert len(refused) < 10_000  # counted, not listed one by one
    assert room.heard.wait(lambda one: one["blocked"] and "192.0.43.8" in one["url"])


def test_beyond_the_limit_new_connections_are_reset_and_reported(
    walled: Walls, listener: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "MOST_CONNECTIONS", 64)
    room = walled(names={"raw.test": LOCAL}, allowed_hosts=["raw.test", *LOCAL])
    port = listener(echo).port
    code = f"""
import socket
held, failed = [], 0
for _ in range(100):
    try:
        s = socket.create_connection(('raw.test', {port})); s.settimeout(60)
        s.sendall(b'x'); assert s.recv(1) == b'x'; held.append(s)
    except OSError:
        failed += 1
print(len(held), failed)"""
    assert room.python(code).stdout == "64 36\n"
    assert "already has 64 connections" in room.heard.blocked("raw.test")["reason"]


def test_half_a_client_hello_blocks_nobody_else(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    code = f"""
import socket, subprocess
held = []
for cut in (b'\\x16', b'\\x16\\x03\\x01', b'\\x16\\x03\\x01\\x02\\x00\\x01\\x00\\x01\\xfc\\x03\\x03' + b'a' * 50):
    s = socket.create_connection(('good.test', {origin.port})); s.sendall(cut); held.append(s)
print(subprocess.run(['curl', '-sS', 'http://good.test:{origin.port}/ok'], capture_output=True, text=True).stdout)"""
    assert "GET /ok" in room.python(code).stdout


def test_garbage_that_begins_as_tls_is_refused(walled: Walls, listener: Listen) -> None:
    got = threading.Event()

    def serve(client: socket.socket) -> None:
        if client.recv(1):
            got.set()

    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    code = f"""
import os, socket
for _ in range(50):
    s = socket.create_connection(('good.test', {listener(serve).port})); s.settimeout(10)
    try:
        s.sendall(b'\\x16\\x03\\x01\\x00\\x40' + b'\\x02' + os.urandom(63)); s.recv(1)
    except OSError:
        pass"""
    assert room.python(code).exit_code == 0
    assert room.heard.blocked("good.test")["rule"] == "tls"
    assert not got.is_set() and not broken(room)


def test_a_megabyte_of_headers_to_a_refused_host_gets_its_403(walled: Walls) -> None:
    code = """
import socket
s = socket.create_connection(('192.0.43.8', 80)); s.settimeout(10)
try:
    s.sendall(b'GET / HTTP/1.1\\r\\n')
    for _ in range(1000): s.sendall(b'X: ' + b'a' * 1000 + b'\\r\\n')
except OSError: pass
try: print(s.recv(100)[:12])
except OSError: print('reset')"""
    assert walled().python(code).stdout in ("b'HTTP/1.1 403'\n", "reset\n")


def test_an_origin_that_dies_mid_body_is_a_reset_inside(walled: Walls, listener: Listen) -> None:
    def die(client: socket.socket) -> None:
        import struct

        client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    result = room.run(f"curl -sS -o /dev/null http://good.test:{listener(die).port}/")
    assert result.exit_code in (18, 56)


def test_five_hundred_connections_at_once_all_work(walled: Walls, listener: Listen) -> None:
    room = walled(names={"raw.test": LOCAL}, allowed_hosts=["raw.test", *LOCAL])
    port = listener(echo).port
    code = f"""
import socket
held = [socket.create_connection(('raw.test', {port})) for _ in range(500)]
for turn in range(3):
    for number, s in enumerate(held): s.sendall(b'%d %d;' % (turn, number))
    for number, s in enumerate(held):
        want = b'%d %d;' % (turn, number); got = b''
        while len(got) < len(want): got += s.recv(len(want) - len(got))
        assert got == want
print('ok')"""
    result = room.python(code)
    assert result.stdout == "ok\n", result.stderr


@pytest.mark.soak
def test_five_hundred_connections_for_half_a_minute_leave_memory_flat(walled: Walls, listener: Listen) -> None:
    room = walled(names={"raw.test": LOCAL}, allowed_hosts=["raw.test", *LOCAL])
    code = """
import selectors, socket, sys, time
chosen, end = selectors.DefaultSelector(), time.monotonic() + float(sys.argv[2])
for _ in range(500):
    one = socket.create_connection(('raw.test', int(sys.argv[1]))); one.sendall(b'x' * 100)
    chosen.register(one, selectors.EVENT_READ)
while time.monotonic() < end:
    for key, _ in chosen.select(1):
        data = key.fileobj.recv(4096); assert data; key.fileobj.sendall(data)"""
    port = str(listener(echo).port)
    program = ["/usr/bin/python3", "-c", code, port]
    assert room.sandbox.exec([*program, "3"]).exit_code == 0
    before = resident()
    result = room.sandbox.exec([*program, "30"])
    assert result.exit_code == 0, result.stderr
    assert resident() - before < 16 << 20


def test_names_without_number_leave_the_table_bounded(walled: Walls, origin: Origin) -> None:
    room = walled(names={"x1.good.test": LOCAL}, allowed_hosts=["*.good.test", *LOCAL])
    room.run("getent hosts x1.good.test")
    before = resident()
    code = """
import socket, struct
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('198.18.0.2', 53)); u.settimeout(10)
for number in range(20000):
    label = b'x%d' % number
    name = bytes((len(label),)) + label + b'\\4good\\4test\\0'
    u.send(struct.pack('>HHHHHH', number & 65535, 256, 1, 0, 0, 0) + name + b'\\0\\1\\0\\1'); u.recv(600)"""
    assert room.python(code).exit_code == 0
    assert resident() - before < 32 << 20
    assert "GET /still" in room.run(f"curl -sS http://x1.good.test:{origin.port}/still").stdout


def test_a_child_of_the_owner_inherits_no_listening_socket(walled: Walls) -> None:
    room = walled(allowed_hosts=["good.test"], publish=["0:80"])
    sockets = [*room.watch.sockets.values(), *(one for _, one in room.watch.published)]
    assert sockets and not any(os.get_inheritable(one.fileno()) for one in sockets)
