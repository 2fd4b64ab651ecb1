"""A tenant holds placeholders; values go where they may, and nowhere else."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from sandbox.config.model import Secret
from sandbox.errors import ConfigError
from sandbox.network.secrets import Secrets
from sandbox.network.values import resolve
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
    assert given.encode() not in body
    assert sent.encode() in body


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


def test_a_body_in_a_coding_that_cannot_be_looked_into_is_refused(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    status, _, text = lab.ask("POST", "/", {"Content-Encoding": "br"}, body=b"whatever")
    assert status == 403
    assert b"cannot be looked into" in text
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
    lab.ask("GET", f"/?key={ESCAPED_VALUE}")
    assert VALUE not in repr(lab.reports)
    assert ESCAPED_VALUE not in repr(lab.reports)
    assert [PLACEHOLDER in report["url"] for report in lab.reports] == [True, True]


def test_a_secret_is_for_the_host_and_port_it_names(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(hosts=["api.example.com:8443"])}})
    assert lab.ask("GET", "/", bearer())[0] == 403


ATTACKERS = {
    "a header": ("/", {"Authorization": "Bearer attackers-own-key"}),
    "Basic": ("/", {"Authorization": "Basic " + base64.b64encode(b"attacker:key").decode()}),
    "an API key's header": ("/", {"X-Goog-Api-Key": "attackers-own-key"}),
    "a cookie": ("/", {"Cookie": "session=attackers"}),
    "the address": ("/upload?api_key=attackers-own-key", {}),
}


@pytest.mark.parametrize("how", ATTACKERS)
def test_an_allowed_host_cannot_be_used_with_somebody_elses_key(make_lab: MakeLab, how: str) -> None:
    lab = make_lab({"secrets": {"KEY": secret(exclusive=True, **{"in": ["header", "query"]})}})
    target, headers = ATTACKERS[how]
    status, _, text = lab.ask("GET", target, headers)
    assert status == 403
    assert b"is used with the sandbox's own credentials only" in text
    assert lab.origins["api.example.com"].bytes_received == 0
    sent = base64.b64encode(f"u:{PLACEHOLDER}".encode()).decode()
    for own in (bearer(), {"Authorization": f"Basic {sent}"}, {"X-Api-Key": PLACEHOLDER}, {}):
        assert lab.ask("GET", f"/?key={PLACEHOLDER}&page=2", own)[0] == 200


# Where values come from


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
        ({"value": VALUE, "hosts": []}, "names no host"),
        ({"value": VALUE, "in": ["cookie"]}, "header, query, body"),
    ],
)
def test_a_secret_that_cannot_be_used_says_why_and_never_what_it_holds(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(one(**fields))
    assert message in str(caught.value)
    assert "network.secrets.KEY" in str(caught.value)
    assert VALUE not in str(caught.value)


def test_nothing_that_can_be_printed_shows_a_value() -> None:
    secrets = Secrets(one(value=VALUE), {"KEY": PLACEHOLDER})
    shown = repr(secrets) + repr(secrets._credentials) + secrets.scrub(f"x {VALUE} y")
    assert VALUE not in shown
