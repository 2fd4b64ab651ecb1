"""Floods of frames on one HTTP/2 connection, out of a real sandbox: the owner's memory stays what it was, nothing is
printed, and the next tenant is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.network.furnished import Furnished

pytestmark = pytest.mark.walls

MEGABYTES = 8  # far above what one connection may hold (its windows and buffers: some 3), below a leak
# Sends frames and reads nothing, which is the worst that a tenant can do, until all are sent or nobody takes more; then
# it reads.
FLOOD = """
import select, socket, ssl, sys
flood, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def frame(kind, flags=0, stream=0, content=b""):
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content

DATA, HEADERS, RESET, SETTINGS, PING, WINDOW, CONTINUATION, UNKNOWN = 0, 1, 3, 4, 6, 8, 9, 99
name = f"api.test:{port}".encode()
head = b"\\x83\\x84\\x87\\x01" + bytes((len(name),)) + name  # POST / https, and whom it is for
opened = frame(HEADERS, 4, 1, head)
frames = {
    "empty data": (opened + frame(DATA, 0, 1, b"x"), lambda at: frame(DATA, 0, 1)),
    "one by one": (opened, lambda at: b""),
    "padding": (opened, lambda at: frame(DATA, 8, 1, b"\\0")),
    "ping": (b"", lambda at: frame(PING, 0, 0, bytes(8))),
    "settings": (b"", lambda at: frame(SETTINGS, 0, 0, (4).to_bytes(2, "big") + (65535 + at % 2).to_bytes(4, "big"))),
    "window": (opened, lambda at: frame(WINDOW, 0, 1, (1).to_bytes(4, "big"))),
    "unknown": (b"", lambda at: frame(UNKNOWN)),
    "continuation": (frame(HEADERS, 0, 1, head), lambda at: frame(CONTINUATION, 0, 1)),
    "long headers": (frame(HEADERS, 0, 1, head), lambda at: frame(CONTINUATION, 0, 1, b"\\x00\\x01a\\x01b" * 3000)),
    "streams": (b"", lambda at: frame(HEADERS, 4, 2 * at + 1, head)),
    "resets": (b"", lambda at: frame(HEADERS, 4, 2 * at + 1, head) + frame(RESET, 0, 2 * at + 1, bytes(4))),
    # Each of these makes the gate itself reset the stream.
    "provoked resets": (b"", lambda at: frame(HEADERS, 5, 2 * at + 1, head) + frame(DATA, 0, 2 * at + 1, b"x")),
}
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
first, more = frames[flood]
flood = b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + frame(SETTINGS) + first + b"".join(map(more, range(count)))
left, got, reading = memoryview(flood * (count > 0) + frame(PING, 0, 0, b"the last")), b"", False
with context.wrap_socket(socket.create_connection(("api.test", port)), server_hostname="api.test") as s:
    assert s.selected_alpn_protocol() == "h2"
    if sys.argv[1] == "one by one":
        s.sendall(flood)
        for at in range(2000):
            s.sendall(frame(DATA, 0, 1) + frame(PING, 0, 0, at.to_bytes(8, "big")))
            while frame(PING, 1, 0, at.to_bytes(8, "big")) not in (got := got[-99:] + s.recv(9999)):
                pass
    s.setblocking(False)
    try:
        while frame(PING, 1, 0, b"the last") not in got:
            try:
                while left:
                    left = left[s.send(left[:16384]):]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                pass
            if not reading:
                reading = not select.select([], [s], [], 1)[1] if left else True
                continue
            try:
                if not (data := s.recv(65536)):
                    raise ConnectionResetError
                got = got[-99:] + data
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                select.select([s], [s] if left else [], [])
        print("served")
    except OSError:
        print("ended")
"""
FLOODS = {  # how many, and whether the connection is ended for it
    "empty data": (150_000, "served"),
    "one by one": (0, "served"),
    "padding": (30_000, "served"),
    "ping": (50_000, "served"),
    "settings": (25_000, "served"),
    "window": (60_000, "served"),
    "unknown": (60_000, "served"),
    "continuation": (1_000, "ended"),
    "long headers": (1_000, "ended"),
    "streams": (1_000, "ended"),
    "resets": (1_000, "ended"),
    "provoked resets": (1_000, "ended"),
}


def memory(field: str) -> int:
    """Megabytes of this process, which owns the sandbox."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) // 1024


async def takes_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An origin that never makes room for a body, so that what the tenant sends waits at the gate."""
    writer.write(b"\0\0\6\4\0\0\0\0\0" + b"\0\4" + bytes(4))
    while await reader.read(65536):
        pass


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_frames_costs_the_owner_nothing(
    furnished: Callable[..., Furnished], capfd: pytest.CaptureFixture[str], flood: str
) -> None:
    place = furnished()
    place.run("curl", "-sS", place.url())
    if flood == "empty data":
        place.origins["api.test"].raw = takes_nothing
    port = str(place.origins["api.test"].port)
    # A small one first: what a process allocates once, for modules and for one read full of frames, is allocated.
    place.run("/usr/bin/python3", "-c", FLOOD, flood, port, str(FLOODS[flood][0] // 10))
    count, end = FLOODS[flood]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    done = place.run("/usr/bin/python3", "-c", FLOOD, flood, port, str(count))
    assert done.stdout.strip() == end, done.stderr
    assert memory("VmHWM") - before < MEGABYTES
    place.origins["api.test"].raw = None
    assert place.run("curl", "-sS", place.url()).exit_code == 0
    assert capfd.readouterr().err == ""
    assert not [one for one in place.heard.records if one["type"] == "fetch_proxy_error"]
    assert place.origins["api.test"].connections < 400
