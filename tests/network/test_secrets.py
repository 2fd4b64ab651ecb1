"""A tenant holds placeholders; values go where they may, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import threading
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

import pytest

from sandbox.config.model import Secret
from sandbox.errors import ConfigError
from sandbox.network.secrets.sources import resolve
from sandbox.network.secrets.store import Secrets
from tests.network.lab import PLACEHOLDER, VALUE, Lab, secret

MakeLab = Callable[..., Lab]


def bearer(word: str = PLACEHOLDER) -> dict[str, str]:
    return {"Authorization": f"Bearer {word}"}


def test_the_origin_gets_the_value_and_the_tenant_never_sees_it(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    status, _, body = lab.ask("GET", "/v1", bearer())
    [seen] = lab.origins["api.example.com"].seen
    assert dict(seen["headers"])["authorization"] == f"Bearer {VALUE}"
    assert status == 200
    assert VALUE.encode() not in body  # the origin echoes what it got
    assert PLACEHOLDER.encode() in body


def test_a_value_inside_basic_credentials_is_put_in_and_its_echo_turned_back(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    sent = base64.b64encode(f"user:{PLACEHOLDER}".encode()).decode()
    _, _, body = lab.ask("GET", "/", {"Authorization": f"Basic {sent}"})
    [seen] = lab.origins["api.example.com"].seen
    given = dict(seen["headers"])["authorization"].removeprefix("Basic ")
    assert base64.b64decode(given) == f"user:{VALUE}".encode()
    assert base64.b64encode(VALUE.encode())[:8] not in body
    assert given.encode()[8:-4] not in body
    assert PLACEHOLDER.encode() in body


def test_query_and_body_are_filled_when_asked_and_lengths_are_right(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(**{"in": ["query", "body"]})}})
    lab.ask("POST", f"/v1?key={PLACEHOLDER}", bearer(), body=b'{"key": "%s"}' % PLACEHOLDER.encode())
    [seen] = lab.origins["api.example.com"].seen
    assert seen["target"] == "/v1?key=sk-live-9f8e7d6c5b4a-the%2Freal%2Bone"
    assert json.loads(seen["body"]) == {"key": VALUE}
    assert dict(seen["headers"])["authorization"] == f"Bearer {PLACEHOLDER}"  # not asked for headers


def test_a_compressed_body_is_filled_too(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(**{"in": ["body"]})}})
    lab.ask("POST", "/", {"Content-Encoding": "gzip"}, body=gzip.compress(PLACEHOLDER.encode()))
    [seen] = lab.origins["api.example.com"].seen
    assert seen["body"] == VALUE.encode()
    assert "content-encoding" not in dict(seen["headers"])


def test_places_that_were_not_asked_for_stay_as_they_are(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.ask("POST", f"/v1?key={PLACEHOLDER}", body=PLACEHOLDER.encode())
    [seen] = lab.origins["api.example.com"].seen
    assert VALUE not in seen["target"]
    assert VALUE.encode() not in seen["body"]


ESCAPED = "".join(f"%{ord(letter):02x}" for letter in PLACEHOLDER)
IN_JSON = "".join(f"\\u{ord(letter):04x}" for letter in PLACEHOLDER)


def chunked(data: bytes, size: int) -> bytes:
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def raw(line: str, *fields: str, body: bytes = b"") -> bytes:
    return "\r\n".join((line, "Host: other.example.com", *fields, "", "")).encode() + body


BASIC = base64.b64encode(f"u:{PLACEHOLDER}".encode()).decode()
PACKED, DEFLATED = gzip.compress(PLACEHOLDER.encode()), zlib.compress(b"x" * 999 + PLACEHOLDER.encode())
LEAKS = {
    "in a header": raw("GET / HTTP/1.1", f"Authorization: Bearer {PLACEHOLDER}"),
    "in the name of a header": raw("GET / HTTP/1.1", f"{PLACEHOLDER}: x"),
    "in the name of a header, as HTTP/2 writes it": raw("GET / HTTP/1.1", f"{PLACEHOLDER.lower()}: x"),
    "in the path": raw(f"GET /{PLACEHOLDER} HTTP/1.1"),
    "in the path, escaped": raw(f"GET /{ESCAPED} HTTP/1.1"),
    "in the path, escaped twice": raw(f"GET /{ESCAPED.replace('%', '%25')} HTTP/1.1"),
    "in the query": raw(f"GET /?a={PLACEHOLDER} HTTP/1.1"),
    "inside Basic": raw("GET / HTTP/1.1", f"Authorization: Basic {BASIC}"),
    "inside Proxy-Authorization": raw("GET / HTTP/1.1", f"Proxy-Authorization: basic  {BASIC}"),
    "in a body": raw("POST / HTTP/1.1", f"Content-Length: {len(PLACEHOLDER)}", body=PLACEHOLDER.encode()),
    "in a form": raw("POST / HTTP/1.1", f"Content-Length: {len(ESCAPED)}", body=ESCAPED.encode()),
    "in JSON": raw("POST / HTTP/1.1", f"Content-Length: {len(IN_JSON)}", body=IN_JSON.encode()),
    "over chunks": raw("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=chunked(PLACEHOLDER.encode(), 3)),
    "in gzip": raw("POST / HTTP/1.1", "Content-Encoding: gzip", f"Content-Length: {len(PACKED)}", body=PACKED),
    "in deflate over chunks": raw(
        "POST / HTTP/1.1",
        "Content-Encoding: deflate",
        "Transfer-Encoding: chunked",
        body=chunked(DEFLATED, 5),
    ),
    "in a trailer": raw(
        "POST / HTTP/1.1",
        "Transfer-Encoding: chunked",
        body=b"1\r\nx\r\n0\r\nX-Key: " + PLACEHOLDER.encode() + b"\r\n\r\n",
    ),
    "in a WebSocket handshake": raw(
        "GET / HTTP/1.1",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Sec-WebSocket-Protocol: {PLACEHOLDER}",
    ),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_placeholder_sent_to_another_host_blocks_the_request_before_a_byte_leaves(
    make_lab: MakeLab, leak: str
) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    answer = lab.say(LEAKS[leak], once=True)
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"X-Proxy-Error: blocked-by-allowlist" in answer
    assert b"the secret KEY must not be sent to other.example.com" in answer
    assert lab.origins["other.example.com"].bytes_received == 0
    [report] = lab.reports
    assert not report["decision"].allowed
    assert report["decision"].rule == "network.secrets.KEY"


def test_a_body_in_a_coding_that_cannot_be_inspected_is_refused(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    status, _, text = lab.ask("POST", "/", {"Content-Encoding": "br"}, body=b"whatever")
    assert status == 403
    assert b"cannot be inspected" in text
    assert lab.origins["other.example.com"].bytes_received == 0


def test_a_placeholder_beyond_what_is_read_ahead_cuts_the_request_before_it_has_left(
    make_lab: MakeLab,
) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    origin = lab.origins["other.example.com"]
    got = bytearray()

    async def collect(reader: Any, writer: Any) -> None:
        while data := await reader.read(65536):
            got.extend(data)

    origin.raw = collect
    body = b"x" * (3 * 2**20) + PLACEHOLDER.encode()
    with lab.tls_socket() as sock:
        try:
            sock.sendall(raw("POST / HTTP/1.1", f"Content-Length: {len(body)}", body=body))
            answer = sock.recv(100)
        except OSError:
            answer = b""
    lab.wait_until_idle()
    assert answer.startswith(b"HTTP/1.1 403") or not answer
    assert b"PLACEHOLDER" not in got
    assert [report["decision"].rule for report in lab.reports] == ["network.secrets.KEY"]


def test_a_value_is_never_sent_without_tls(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.destination_port = 80
    answer = lab.say(
        f"GET / HTTP/1.0\r\nHost: api.example.com\r\nAuthorization: {PLACEHOLDER}\r\n\r\n".encode(), tls=False
    )
    assert b" 403 " in answer.split(b"\r\n")[0]
    assert b"over https only" in answer
    assert lab.plain.bytes_received == 0


def test_values_in_an_answer_come_back_as_placeholders_also_compressed_or_split(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    text = (
        f"plain {VALUE}, json {json.dumps(VALUE)[1:-1].replace('/', chr(92) + '/')}, address {ESCAPED_VALUE}".encode()
    )

    def answer(*_: Any) -> Any:
        return (
            200,
            [("Content-Encoding", "gzip"), ("X-Echo", VALUE), ("Set-Cookie", "a=1")],
            gzip.compress(text),
        )

    lab.origins["api.example.com"].answer = answer
    _, headers, body = lab.ask("GET", "/", bearer())
    assert headers["x-echo"] == PLACEHOLDER
    assert "content-encoding" not in headers
    assert body.count(PLACEHOLDER.encode()) == 3
    assert b"9f8e7d6c5b4a" not in body


ESCAPED_VALUE = VALUE.replace("/", "%2F").replace("+", "%2B")


def test_an_answer_that_dribbles_a_value_byte_by_byte_is_cleaned(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})

    async def dribble(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for byte in f"<{VALUE}>".encode():
            writer.write(b"1\r\n%c\r\n" % byte)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    lab.origins["api.example.com"].raw = dribble
    _, _, body = lab.ask("GET", "/", bearer())
    assert VALUE.encode()[3:] not in body
    assert PLACEHOLDER.encode() in body


def test_values_in_trailers_and_early_hints_are_turned_back_too(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})

    async def answer(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 103 Early Hints\r\nLink: <{VALUE}>\r\n\r\n".encode())
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        writer.write(f"0\r\nX-Sum: {VALUE}\r\n\r\n".encode())
        await writer.drain()

    lab.origins["api.example.com"].raw = answer
    text = lab.say(f"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: {PLACEHOLDER}\r\nConnection: close\r\n\r\n".encode())
    assert VALUE.encode() not in text
    assert text.count(PLACEHOLDER.encode()) == 2 or (b"103" in text and b"X-Sum" not in text)


def test_upstream_is_asked_not_to_compress(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.ask("GET", "/", {**bearer(), "Accept-Encoding": "br, gzip"})
    assert dict(lab.origins["api.example.com"].seen[0]["headers"])["accept-encoding"] == "identity"


def test_a_rotated_value_is_used_at_once_and_a_revoked_placeholder_stays_blocked(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    origin = lab.origins["api.example.com"]
    lab.update({"secrets": {"KEY": secret(value="sk-the-second-value")}})
    lab.ask("GET", "/", bearer())
    assert dict(origin.seen[-1]["headers"])["authorization"] == "Bearer sk-the-second-value"
    lab.update({"secrets": {}})
    status, _, text = lab.ask("GET", "/", bearer())
    assert status == 403
    assert b"the secret KEY has been revoked" in text
    assert len(origin.seen) == 1


def test_addresses_in_events_hold_no_value(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(**{"in": ["query"]})}})
    lab.ask("GET", f"/?key={PLACEHOLDER}")
    lab.ask("GET", f"/?key={ESCAPED_VALUE}")  # which is refused, and on the record
    assert VALUE not in repr(lab.reports)
    assert ESCAPED_VALUE not in repr(lab.reports)
    assert [PLACEHOLDER in report["url"] for report in lab.reports] == [True, True]


def test_an_answer_that_breaks_off_in_a_value_leaves_none_in_events(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    go_on = asyncio.Event()

    async def broken(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nx\n\r\n")
        await go_on.wait()  # until the head has been passed on
        writer.write(f"{VALUE}\r\n".encode())

    lab.origins["api.example.com"].raw = broken
    with lab.tls_socket() as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: {PLACEHOLDER}\r\n\r\n".encode())
        while b"x\n" not in sock.recv(65536):
            pass
        lab.thread.loop.call_soon_threadsafe(go_on.set)
        lab.wait_until_idle()
    assert "upstream's answer is malformed" in repr(lab.reports)
    assert VALUE not in repr(lab.reports)


def test_a_secret_is_for_the_host_and_port_it_names(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(hosts=["api.example.com:8443"])}})
    assert lab.ask("GET", "/", bearer())[0] == 403


# Every value, for the sandbox's whole life


OLD, NEW = VALUE, "sk-the-second-value-of-it"


def test_values_that_were_rotated_or_revoked_are_still_scrubbed_on_both_schemes(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    told = f"old {OLD} new {NEW} old again {OLD}".encode()
    for origin in (*lab.origins.values(), lab.plain):
        origin.answer = lambda *_: (200, [("X-Echo", OLD)], told)
    for settings in ({"KEY": secret(value=NEW)}, {}):
        lab.update({"secrets": settings})
        for host in lab.origins:
            lab.host = host
            _, headers, body = lab.ask("GET", "/")
            assert OLD.encode() not in body
            assert NEW.encode() not in body
            assert OLD not in headers["x-echo"]
        lab.destination_port = 80
        plain = lab.say(f"GET / HTTP/1.1\r\nHost: {lab.host}\r\nConnection: close\r\n\r\n".encode(), tls=False)
        assert plain.startswith(b"HTTP/1.1 200")
        assert OLD.encode() not in plain
        assert NEW.encode() not in plain
        lab.destination_port = 443


def test_another_hosts_answer_keeps_its_promised_length(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    lab.origins[lab.host].answer = lambda *_: (200, [], f"before {VALUE} after".encode())
    _, headers, body = lab.ask("GET", "/")
    assert headers["content-length"] == str(len(f"before {VALUE} after"))
    assert VALUE.encode() not in body
    assert body.endswith(b" after")


@pytest.mark.parametrize("place", ["header", "path", "Basic", "body", "over chunks"])
def test_a_value_that_a_tenant_has_learned_is_not_sent_to_anybody(make_lab: MakeLab, place: str) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.update({"secrets": {"KEY": secret(value=NEW)}})  # and the old one counts as well
    basic = base64.b64encode(f"u:{VALUE}".encode()).decode()
    sent = {
        "header": raw("GET / HTTP/1.1", f"X: {VALUE}"),
        "path": raw(f"GET /{ESCAPED_VALUE} HTTP/1.1"),
        "Basic": raw("GET / HTTP/1.1", f"Authorization: Basic {basic}"),
        "body": raw("POST / HTTP/1.1", f"Content-Length: {len(VALUE)}", body=VALUE.encode()),
        "over chunks": raw("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=chunked(VALUE.encode(), 5)),
    }
    for host in lab.origins:
        lab.host = host
        answer = lab.say(sent[place].replace(b"other.example.com", host.encode()), once=True)
        assert answer.startswith(b"HTTP/1.1 403")
        assert b"the request contains the value of the secret KEY" in answer
        assert lab.origins[lab.host].bytes_received == 0


def test_no_part_of_an_answer_can_be_asked_of_a_host_that_a_secret_is_for(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.ask("GET", "/", {"Range": "bytes=0-20", "If-Range": "x"})
    assert not {"range", "if-range"} & {name for name, _ in lab.origins["api.example.com"].seen[0]["headers"]}
    lab.origins["api.example.com"].answer = lambda *_: (206, [("Content-Range", "bytes 0-9/33")], VALUE[:10].encode())
    status, _, body = lab.ask("GET", "/")
    assert status == 403
    assert VALUE[:10].encode() not in body


def test_a_value_in_the_name_of_a_header_takes_the_header_away(make_lab: MakeLab) -> None:
    value = "sk-Live-0123456789"
    lab = make_lab({"secrets": {"KEY": secret(value=value)}})
    lab.origins["api.example.com"].answer = lambda *_: (200, [(f"X-{value.lower()}-y", "1"), ("X-Z", "2")], b"")
    _, headers, _ = lab.ask("GET", "/")
    assert value.lower() not in repr(headers).lower()
    assert headers["x-z"] == "2"


# What is held back


def streamed(lab: Lab, pieces: list[bytes], kind: str) -> list[int]:
    """How many bytes of the answer have come after each piece that the origin sent: it waits for us in between."""
    turn = threading.Semaphore(0)

    async def dribble(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            # A line of its own behind each piece says that all before it has been dealt with.
            for part in (piece, b"\n."):
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
            await asyncio.get_running_loop().run_in_executor(None, turn.acquire)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    lab.origins["api.example.com"].raw = dribble
    sizes, body = [], b""
    with lab.tls_socket() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(1)
        for at in range(len(pieces)):
            while body.count(b"\n") <= at:
                body += _chunk(sock)
            sizes.append(len(body))
            turn.release()
    return sizes


def _chunk(sock: Any) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        line += sock.recv(1)
    left = int(line, 16) + 2
    data = b""
    while len(data) < left:
        data += sock.recv(left - len(data))
    return data[:-2]


def test_what_is_held_back_does_not_reveal_whether_a_guess_is_right(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    right = [f"data: {VALUE[:size]}".encode() for size in range(1, len(VALUE), 3)]
    wrong = [piece[:6] + bytes(byte ^ 1 for byte in piece[6:]) for piece in right]
    first, second = (streamed(lab, pieces, "text/event-stream") for pieces in (right, wrong))
    assert first == second
    # And at once: a line is there when it has ended.
    assert first == [sum(len(piece) + 2 for piece in right[: at + 1]) - 1 for at in range(len(right))]


# Bodies are written as their kind writes text

AWKWARD = 'sk-"quo\\ted"&a=b<c>/x'


@pytest.mark.parametrize(
    ("kind", "body", "read"),
    [
        ("application/json", '{"k": "PH"}', lambda data: json.loads(data)["k"]),
        ("application/vnd.api+json; charset=utf-8", '["PH"]', lambda data: json.loads(data)[0]),
        ("application/x-www-form-urlencoded", "a=1&k=PH&z=2", lambda data: parse_qs(data.decode())["k"][0]),
        ("application/xml", "<k a='1'>PH</k>", lambda data: ElementTree.fromstring(data).text),
        ("text/plain", "PH", lambda data: data.decode()),
    ],
)
def test_a_value_is_written_into_a_body_as_its_kind_writes_text(
    make_lab: MakeLab, kind: str, body: str, read: Callable[[bytes], str]
) -> None:
    lab = make_lab({"secrets": {"KEY": secret(value=AWKWARD, **{"in": ["body"]})}})
    status, _, _ = lab.ask("POST", "/", {"Content-Type": kind}, body=body.replace("PH", PLACEHOLDER).encode())
    assert status == 200
    assert read(lab.origins["api.example.com"].seen[0]["body"]) == AWKWARD


@pytest.mark.parametrize("kind", ["application/grpc", "application/x-protobuf", "text/yaml", "multipart/form-data"])
def test_a_body_in_which_a_value_cannot_be_written_is_refused_with_the_reason(make_lab: MakeLab, kind: str) -> None:
    lab = make_lab({"secrets": {"KEY": secret(value=AWKWARD, **{"in": ["body"]})}})
    status, _, text = lab.ask("POST", "/", {"Content-Type": kind}, body=PLACEHOLDER.encode())
    assert status == 403
    assert b"its value cannot be written into a body of type" in text
    assert lab.origins["api.example.com"].bytes_received == 0


# Where values come from


def test_exclusive_is_gone_and_says_what_to_use_instead() -> None:
    with pytest.raises(ConfigError, match=r"network\.http.* hook"):
        one(value=VALUE, exclusive=True)


@pytest.mark.parametrize("value", ["ümlaut-" + VALUE, VALUE + " ", " " + VALUE, VALUE + "\t", VALUE[:7]])
def test_a_value_that_would_not_come_out_of_a_header_as_it_went_in_is_refused(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(one(value=value))
    assert value.strip() not in str(caught.value)


def one(**fields: Any) -> dict[str, Secret]:
    return {"KEY": Secret.read({"hosts": ["h.example"], **fields})}


def test_values_come_from_the_environment_a_file_or_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("OWNERS_KEY", "from the environment")
    file = tmp_path / "key"
    file.write_text("from a file\n")
    assert resolve(one(from_env="OWNERS_KEY")) == {"KEY": "from the environment"}
    assert resolve(one(from_file=str(file))) == {"KEY": "from a file"}
    assert resolve(one(from_command=["echo", "from a program"])) == {"KEY": "from a program"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one of"),
        ({"value": VALUE, "from_env": "X"}, "exactly one of"),
        ({"from_env": "NO_SUCH_VARIABLE"}, "no variable 'NO_SUCH_VARIABLE'"),
        ({"from_file": "/no/such/file"}, "cannot read '/no/such/file'"),
        ({"from_command": ["/no/such/program"]}, "cannot run"),
        ({"from_command": ["sh", "-c", f"echo {VALUE}; exit 3"]}, "failed with status 3"),
        ({"value": f"{VALUE}\nsecond line"}, "single line"),
        ({"value": VALUE, "hosts": []}, "which hosts it may be sent to"),
        ({"value": VALUE, "in": ["cookie"]}, "header, query, body"),
    ],
)
def test_a_secret_that_cannot_be_used_says_why_and_never_what_it_holds(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(one(**fields))
    assert message in str(caught.value)
    assert "network.secrets.KEY" in str(caught.value)
    assert VALUE not in str(caught.value)


@pytest.mark.parametrize("placeholder", ["sk-live-key", "before-sk-live-key", "live-key"])
def test_a_placeholder_that_reveals_a_value_is_refused(placeholder: str) -> None:
    fields = Secret(value="sk-live-key", hosts=["api.example.com"], placeholder=placeholder)
    with pytest.raises(ConfigError, match="tenants can see it"):
        Secrets({"KEY": fields}, {})


def test_nothing_that_can_be_printed_shows_a_value() -> None:
    secrets = Secrets(one(value=VALUE), {"KEY": PLACEHOLDER})
    shown = repr(secrets) + repr(secrets._held) + secrets.scrub(f"x {VALUE} y")
    assert VALUE not in shown
