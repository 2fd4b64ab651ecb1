"""What a program in a real sandbox can learn of a secret's value from a server that helps it, and can send on."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Pong

from tests.network.furnished import NAMES, Furnished
from tests.network.lab import Handler, Origin

pytestmark = pytest.mark.walls

Make = Callable[..., Furnished]
VALUE = "sk-live-9f8e7d6c5b4a-the/real+one"
NEW = "sk-the-second-value-of-it"
TELLING = (VALUE[8:], NEW[7:])  # no part of a value that long is ever shown


def key(value: str = VALUE, **more: Any) -> dict[str, Any]:
    return {"value": value, "hosts": ["api.test:*"], **more}


# Every value, for the sandbox's whole life


def test_every_value_ever_given_is_hidden_on_both_schemes(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key()}})
    unencrypted = place.origins["plain"] = Origin(place.thread, None)  # which is closed with the others
    for origin in place.origins.values():
        origin.answer = lambda *_: (200, [("X-Echo", VALUE)], f"old {VALUE} new {NEW} old again {VALUE}".encode())
    urls = [*map(place.url, NAMES), f"http://api.test:{unencrypted.port}/"]
    for now in ({"KEY": key()}, {"KEY": key(NEW)}, {"KEY": None}):
        place.sandbox.update_network({"secrets": now})
        seen = place.run("curl", "-sSi", *urls).stdout
        assert seen.count("old again") == 3
        # The second value is one from when it was given.
        assert [part for part in TELLING if part in seen] == ([NEW[7:]] if now["KEY"] == key() else [])


def test_every_value_ever_given_is_refused_on_its_way_out_on_both_schemes(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key()}})
    unencrypted = place.origins["plain"] = Origin(place.thread, None)  # which is closed with the others
    place.sandbox.update_network({"secrets": {"KEY": key(NEW)}})
    place.sandbox.update_network({"secrets": {"KEY": None}})
    urls = [*map(place.url, NAMES), f"http://api.test:{unencrypted.port}/"]
    for value in (VALUE, NEW):
        for sent in (["-H", f"X: {value}"], ["-d", f"k={value}"], ["-u", f"me:{value}"], []):
            asked = urls if sent else [f"{url}?k={quote(value, safe='')}" for url in urls]
            done = place.run("curl", "-sS", "-w", " %{http_code}\\n", *sent, *asked)
            assert done.stdout.count("the request contains the value of the secret KEY") == 3, (sent, done)
            assert done.stdout.count(" 403\n") == 3
    assert [one.seen for one in place.origins.values()] == [[], [], []]


# What is held back

GUESSES = """
import json, socket, ssl, subprocess, sys
host, port, further, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
raw = socket.create_connection((host, port))
s = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
s.sendall(b"GET / HTTP/1.1\\r\\nHost: " + host.encode() + b"\\r\\n\\r\\n")
got = b""
while b"\\r\\n\\r\\n" not in got:
    got += s.recv(1)
seen, got = [], b""
for number in range(count):
    s.settimeout(0.3)
    try:
        while data := s.recv(65536):  # all that comes before the server goes on
            got += data
    except TimeoutError:
        pass
    seen.append(len(got.partition(b"data")[2]))  # without what may still come of the line before
    subprocess.run(["curl", "-sS", "-o", "/dev/null", further], check=True)
    s.settimeout(60)
    while b"|" not in got:
        got += s.recv(65536)
    got = got.partition(b"|")[2]
print(json.dumps(seen))
"""


def streaming(pieces: list[str], kind: str, turn: threading.Semaphore) -> Handler:
    """Sends the beginning of a line, waits for its turn, ends the line."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            for part in (piece.encode(), b"." * 9000 + b"|\n\n"):
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
                if part == piece.encode():
                    await asyncio.get_running_loop().run_in_executor(None, turn.acquire)
        await reader.read()

    return serve


@pytest.mark.parametrize("kind", ["text/event-stream", "application/octet-stream"])
def test_a_streaming_echo_does_not_reveal_whether_a_guess_is_right(furnished: Make, kind: str) -> None:
    place = furnished({"secrets": {"KEY": key()}}, protocols=["http/1.1"])
    turn = threading.Semaphore(0)

    def go_on(*_: Any) -> Any:
        turn.release()
        return 204, [], b""

    place.origins["other.test"].answer = go_on
    right = [f"data: {VALUE[:size]}" for size in (1, 2, 8, 20, len(VALUE) - 1)]
    wrong = [f"data: {'#' * (len(piece) - 6)}" for piece in right]
    port, further = str(place.origins["api.test"].port), place.url("other.test")
    seen = []
    for pieces in (right, wrong):
        place.origins["api.test"].raw = streaming(pieces, kind, turn)
        done = place.run("/usr/bin/python3", "-c", GUESSES, "api.test", port, further, str(len(pieces)))
        assert done.exit_code == 0, done.stderr
        seen.append(json.loads(done.stdout))
    assert seen[0] == seen[1]


# Values in other spellings, in parts, in odd places


def test_no_part_of_an_answer_can_be_asked_for(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key()}})
    origin = place.origins["api.test"]
    place.run("curl", "-sS", "-r", "0-9", place.url())
    assert "range" not in {name.lower() for name, _ in origin.seen[0]["headers"]}
    origin.answer = lambda *_: (206, [("Content-Range", "bytes 0-19/33")], VALUE[:20].encode())
    done = place.run("curl", "-sS", "-w", "%{http_code}", place.url())
    assert done.stdout.endswith("403") and VALUE[8:20] not in done.stdout


def escaped(value: str, how: str) -> str:
    return "".join(how.format(ord(letter)) if letter in "/+-" else letter for letter in value)


SPELLINGS = {
    "as it is": VALUE,
    "lower-case percent escapes": quote(VALUE, safe="").lower().replace("+", "%2b"),
    "every character a percent escape": "".join(f"%{ord(letter):02x}" for letter in VALUE),
    "escapes of JSON": escaped(VALUE, "\\u{:04X}"),
    "in lower case": escaped(VALUE, "\\u{:04x}"),
    "an escaped slash": VALUE.replace("/", "\\/"),
    **{f"Basic, {name}": base64.b64encode(f"{name}:{VALUE}".encode()).decode() for name in ("a", "ab", "abc")},
    "base64 of URLs": base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
    "hexadecimal": VALUE.encode().hex(),
}


def test_a_value_is_hidden_in_every_spelling(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key()}})
    for spelling, told in SPELLINGS.items():
        for name in place.origins:
            place.origins[name].answer = lambda *_, told=told: (
                200,
                [("X-Echo", told)],
                f'{{"before": "{told}", "after": 1}}'.encode(),
            )
        seen = place.run("curl", "-sSi", *map(place.url, place.origins)).stdout
        assert seen.count('"after": 1') == 2
        # Its ends can be left over, where base64 has them together with what stands beside.
        assert told[8:-8] not in seen and told[:-8][-16:] not in seen, spelling


def test_a_value_in_the_name_of_a_header_takes_the_header_away(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key(NEW)}})
    place.origins["api.test"].answer = lambda *_: (200, [(f"X-{NEW}", "1"), ("X-Other", "2")], b"")
    seen = place.run("curl", "-sSi", place.url()).stdout.lower()
    assert "x-other: 2" in seen and NEW[7:] not in seen


def test_a_value_that_begins_another_hides_none_of_it(furnished: Make) -> None:
    longer = f"{VALUE}-and-the-rest-of-it"
    place = furnished({"secrets": {"SHORT": key(), "LONG": key(longer)}})
    place.origins["api.test"].answer = lambda *_: (200, [("X-Echo", longer)], f"<{longer}> <{VALUE}>".encode())
    seen = place.run("curl", "-sSi", place.url()).stdout
    assert "the-rest-of-it" not in seen and VALUE[8:] not in seen


CONTROL = """
import json, socket, ssl, sys
from wsproto import ConnectionType, WSConnection
from wsproto.events import CloseConnection, Ping, Pong, Request, AcceptConnection
name, port, say = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
s = ssl.create_default_context().wrap_socket(socket.create_connection((name, port)), server_hostname=name)
ws = WSConnection(ConnectionType.CLIENT)
s.sendall(ws.send(Request(host=name, target="/")))
told = []
while not told or told[-1][0] != "CloseConnection":
    data = s.recv(65536)
    ws.receive_data(data or None)
    for event in ws.events():
        if isinstance(event, AcceptConnection) and say:
            what = {"Ping": Ping, "Pong": Pong}.get(say[0])
            s.sendall(ws.send(what(say[1].encode()) if what else CloseConnection(1000, say[1])))
        elif isinstance(event, (Ping, Pong)):
            told.append((type(event).__name__, bytes(event.payload).decode()))
        elif isinstance(event, CloseConnection):
            told.append((type(event).__name__, event.reason or "", event.code))
print(json.dumps(told))
"""


def websocket(heard: list[bytes], says: tuple[Any, ...]) -> Handler:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = WSConnection(ConnectionType.SERVER)
        server.receive_data(await reader.readuntil(b"\r\n\r\n"))
        for _ in server.events():
            writer.write(server.send(AcceptConnection()))
        for event in says:
            writer.write(server.send(event))
        await writer.drain()
        while data := await reader.read(65536):
            heard.append(data)

    return serve


def test_control_frames_of_a_websocket_bring_no_value_in(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key()}}, protocols=["http/1.1"])
    says = (Ping(VALUE.encode()), Pong(VALUE.encode()), CloseConnection(1000, f"x {VALUE}"))
    place.origins["api.test"].raw = websocket([], says)
    done = place.run(sys.executable, "-c", CONTROL, "api.test", str(place.origins["api.test"].port))
    assert [one[0] for one in json.loads(done.stdout)] == ["Ping", "Pong", "CloseConnection"], done.stderr
    assert VALUE[8:] not in done.stdout


def test_control_frames_of_a_websocket_take_neither_value_nor_placeholder_out(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key()}}, protocols=["http/1.1"])
    port = str(place.origins["other.test"].port)
    for kind, word in product(("Ping", "Pong", "CloseConnection"), (VALUE, place.placeholders["KEY"])):
        heard: list[bytes] = []
        place.origins["other.test"].raw = websocket(heard, ())
        done = place.run(sys.executable, "-c", CONTROL, "other.test", port, kind, word)
        assert json.loads(done.stdout)[-1][2] == 1008, done.stderr
        place.heard.blocked("other.test")
        # What the gate itself says to the server is its end, masked or not.
        assert len(b"".join(heard)) < len(word)


# Bodies are written as their kind writes text

AWKWARD = 'sk-"quo\\ted"&a=b<c>/x'


def test_a_value_with_signs_of_its_own_changes_nothing_else_in_a_body(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key(AWKWARD, **{"in": ["body"]})}})
    holder, origin = place.placeholders["KEY"], place.origins["api.test"]
    for kind, body in (("application/json", f'{{"k": "{holder}"}}'),
                       ("application/x-www-form-urlencoded", f"a=1&k={holder}&z=2")):  # fmt: skip
        place.run("curl", "-sS", "-H", f"Content-Type: {kind}", "-d", body, place.url())
    assert json.loads(origin.seen[0]["body"]) == {"k": AWKWARD}
    assert parse_qs(origin.seen[1]["body"].decode()) == {"a": ["1"], "k": [AWKWARD], "z": ["2"]}


def test_a_body_of_another_kind_is_refused_with_the_reason(furnished: Make) -> None:
    place = furnished({"secrets": {"KEY": key(AWKWARD, **{"in": ["body"]})}})
    for kind in ("application/x-protobuf", "text/yaml", "nonsense"):
        sent = ["-H", f"Content-Type: {kind}", "-d", place.placeholders["KEY"]]
        done = place.run("curl", "-sS", *sent, place.url())
        assert "its value cannot be written into a body of type" in done.stdout
    assert place.origins["api.test"].seen == []


# A value that cannot be sent


@pytest.mark.parametrize("value", ["k\u00fcrzlich-0123456789", f"{NEW} ", f"{NEW}\t", f"{NEW}\nsecond-line"])
def test_a_value_that_cannot_be_sent_is_not_in_the_error_that_a_tenant_gets(
    furnished: Make, tmp_path: Path, value: str
) -> None:
    file = tmp_path / "key"
    file.write_text(VALUE)
    place = furnished({"secrets": {"KEY": {"from_file": str(file), "hosts": ["api.test:*"]}}})
    sent = ["-H", f"Authorization: Bearer {place.placeholders['KEY']}"]
    file.write_text(value)
    done = place.run("curl", "-sSi", *sent, place.url())
    headers = [dict(one["headers"]).get("authorization") for one in place.origins["api.test"].seen]
    # White space at its end is not part of what a file holds; it is never sent as anything but a whole value.
    assert headers in ([], [f"Bearer {value.strip()}"], [f"Bearer {VALUE}"])
    assert not [part for part in (*value.split(), VALUE) if part in done.stdout + repr(place.heard.events)]
