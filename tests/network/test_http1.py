"""HTTP/1.1 through the gate: everything a client may do works, everything ambiguous is refused."""

from __future__ import annotations

import asyncio
import http.client
import resource
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.network.http.headers import Headers
from sandbox.network.http.http1_rules import (
    end_to_end,
    origin_form,
    refuse_ambiguous_head,
    refuse_no_request,
    refuse_other_host,
)
from sandbox.network.http.http1_tenant import Http1Tenant
from sandbox.network.http.message import BadMessage, Request, Response
from tests.network.lab import Lab, secret

MakeLab = Callable[..., Lab]
API = "api.example.com"


def client(lab: Lab) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(API, 443)
    connection.sock = lab.tls_socket()
    return connection


def test_many_requests_share_one_connection_on_both_sides(make_lab: MakeLab) -> None:
    lab = make_lab()
    connection = client(lab)
    for number in range(20):
        connection.request("POST" if number % 2 else "GET", f"/{number}", body=b"x" * number if number % 2 else None)
        assert connection.getresponse().read()
    connection.close()
    assert [one["target"] for one in lab.origins[API].seen] == [f"/{number}" for number in range(20)]
    assert lab.origins[API].connections == 1


def test_pipelined_requests_are_answered_one_after_the_other(make_lab: MakeLab) -> None:
    lab = make_lab()
    one = b"POST /a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 3\r\n\r\nabc"
    last = b"GET /b HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n"
    answer = lab.say(one + one + last)
    assert answer.count(b"HTTP/1.1 200") == 3
    assert [seen["target"] for seen in lab.origins[API].seen] == ["/a", "/a", "/b"]


def test_a_pipelined_request_is_looked_at_as_strictly_as_the_first(make_lab: MakeLab) -> None:
    lab = make_lab()
    first = b"GET /a HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
    second = b"GET /b HTTP/1.1\nHost: api.example.com\n\r\n\r\n"
    answer = lab.say(first + second)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"HTTP/1.1 400" in answer
    assert [seen["target"] for seen in lab.origins[API].seen] == ["/a"]


def test_chunked_bodies_pass_both_ways_and_trailers_of_the_answer(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = await reader.readuntil(b"\r\n\r\n") + await reader.readuntil(b"\r\n0\r\n\r\n")
        assert b"transfer-encoding: chunked" in got.lower()
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-End: 2\r\n\r\n")
        await writer.drain()

    lab.origins[API].raw = answer
    text = lab.say(
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
    )
    assert b"3\r\nabc\r\n0\r\nX-End: 2\r\n\r\n" in text


def test_expect_100_continue_reaches_the_origin_and_its_answer_the_tenant(make_lab: MakeLab) -> None:
    lab = make_lab()
    with lab.tls_socket() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 100")
        sock.sendall(b"body")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    assert lab.origins[API].seen[0]["body"] == b"body"


def test_a_refused_expectation_is_refused_before_the_body_is_sent(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    lab.origins[API].raw = refuse
    with lab.tls_socket() as sock:
        sock.sendall(
            b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 9999\r\nExpect: 100-continue\r\n\r\n"
        )
        assert sock.recv(1000).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_answers_without_a_body_end_where_they_end(make_lab: MakeLab, method: str, status: int) -> None:
    lab = make_lab()
    length = [("Content-Length", "5")] if method == "HEAD" else []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            fields = "".join(f"{name}: {value}\r\n" for name, value in length)
            writer.write(f"HTTP/1.1 {status} X\r\n{fields}ETag: x\r\n\r\n".encode())
            await writer.drain()

    lab.origins[API].raw = answer
    connection = client(lab)
    for _ in range(2):
        connection.request(method, "/")
        response = connection.getresponse()
        assert (response.status, response.read(), response.headers["ETag"]) == (status, b"", "x")
    assert lab.origins[API].connections == 1


def test_a_denied_head_request_keeps_the_connection_in_step(make_lab: MakeLab) -> None:
    lab = make_lab({"http": {"deny": ["HEAD api.example.com/**"]}})
    connection = client(lab)
    connection.request("HEAD", "/")
    response = connection.getresponse()
    assert (response.status, response.read()) == (403, b"")
    connection.request("GET", "/")
    assert connection.getresponse().status == 200


def test_several_cookies_stay_several(make_lab: MakeLab) -> None:
    lab = make_lab()
    lab.origins[API].answer = lambda *_: (200, [("Set-Cookie", "a=1, x"), ("Set-Cookie", "b=2")], b"")
    connection = client(lab)
    connection.request("GET", "/")
    assert connection.getresponse().headers.get_all("Set-Cookie") == ["a=1, x", "b=2"]


def test_http_1_0_works_without_a_host_and_ends_with_the_connection(make_lab: MakeLab) -> None:
    lab = make_lab()
    answer = lab.say(b"GET /old HTTP/1.0\r\n\r\n")
    assert b" 200 " in answer.split(b"\r\n")[0]
    assert dict(lab.origins[API].seen[0]["headers"])["host"] == API


def test_an_answer_that_ends_with_the_connection_comes_whole(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"z" * 100_000)
        await writer.drain()

    lab.origins[API].raw = old
    assert lab.ask()[2] == b"z" * 100_000


def test_events_of_an_event_stream_arrive_one_by_one(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})  # also when answers are searched for values
    more = asyncio.Event()

    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(3):
            writer.write(b"data: %d\n\n" % number)
            await writer.drain()
            await more.wait()
            more.clear()

    lab.origins[API].raw = events
    connection = client(lab)
    connection.request("GET", "/events")
    response = connection.getresponse()
    for number in range(3):
        assert response.readline() == b"data: %d\n" % number
        assert response.readline() == b"\n"
        lab.thread.loop.call_soon_threadsafe(more.set)


def test_large_bodies_stream_both_ways_in_bounded_memory(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"  # where bodies are searched
    size = 192 * 2**20
    got = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await reader.readuntil(b"\r\n\r\n")
        while got < size:
            got += len(await reader.read(2**18))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 2**20):
            writer.write(b"d" * 2**20)
            await writer.drain()

    lab.origins["other.example.com"].raw = count
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    connection = http.client.HTTPConnection("other.example.com", 443)
    connection.sock = lab.tls_socket()
    connection.request(
        "PUT", "/", body=(b"u" * 2**20 for _ in range(size // 2**20)), headers={"Content-Length": str(size)}
    )
    response = connection.getresponse()
    received = 0
    while piece := response.read(2**20):
        received += len(piece)
    assert (got, received) == (size, size)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024  # of 384 MiB that passed
    connection.close()
    lab.wait_until_idle()
    assert (lab.reports[0]["sent"], lab.reports[0]["received"]) == (size, size)


def test_a_slow_reader_slows_the_origin(make_lab: MakeLab) -> None:
    lab = make_lab()
    written = 0
    stuck = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            writer.write(b"d" * 2**20)
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                stuck.set()
                return
            written += 2**20

    lab.origins[API].raw = flood
    with lab.tls_socket() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
        lab.thread.run(stuck.wait())
        assert written < 32 * 2**20


# What is refused

HOST = b"Host: api.example.com\r\n"
AMBIGUOUS = {
    "length and chunks": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
    "two lengths in one": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4, 5\r\n\r\nabcd",
    "a length that is none": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +4\r\n\r\nabcd",
    "an unknown coding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding that CGI reads": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "another host": b"GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n",
    "another port": b"GET / HTTP/1.1\r\nHost: api.example.com:8443\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\nX: y\r\n\r\n",
    "a host that is none": b"GET / HTTP/1.1\r\nHost: api.example.com/x\r\n\r\n",
    "absolute form of another host": b"GET https://other.example.com/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "absolute form and Host of another": b"GET https://other.example.com/ HTTP/1.1\r\nHost: other.example.com\r\n\r\n",
    "absolute form of another scheme": b"GET http://api.example.com/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "credentials in the target": b"GET https://x@api.example.com/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a folded line": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    "a bare line feed": b"GET / HTTP/1.1\r\nHost: api.example.com\nX: a\r\n\r\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\rb\r\n\r\n",
    "a NUL": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\n" + HOST + b"X : a\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tunnel": b"CONNECT other.example.com:443 HTTP/1.1\r\nHost: other.example.com:443\r\n\r\n",
    "another version": b"GET / HTTP/3.0\r\n" + HOST + b"\r\n",
    "garbage": b"\x00\x01\x02 hello\r\n\r\n",
    "a head too large": b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 2**20 + b"\r\n\r\n",
}


@pytest.mark.parametrize("what", AMBIGUOUS)
def test_an_ambiguous_request_is_refused_and_never_sent_on(make_lab: MakeLab, what: str) -> None:
    lab = make_lab()
    try:
        answer = lab.say(AMBIGUOUS[what], once=True)
    except OSError:  # it stopped reading in the middle of a megabyte
        answer = b"HTTP/1.1 431"
    assert answer[:10] in (b"HTTP/1.1 4", b"HTTP/1.1 5")
    assert lab.origins[API].bytes_received == 0
    lab.wait_until_idle()
    assert [report["decision"].allowed for report in lab.reports] == [False]


@pytest.mark.parametrize(
    "head",
    [
        b"GET https://api.example.com/path?q HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n",
        b"GET /path?q HTTP/1.1\r\nHost: API.Example.COM.:443\r\nConnection: close\r\n\r\n",
    ],
)
def test_other_spellings_of_the_same_host_are_made_one(make_lab: MakeLab, head: bytes) -> None:
    lab = make_lab()
    assert b" 200 " in lab.say(head)
    [seen] = lab.origins[API].seen
    assert (seen["target"], dict(seen["headers"])["host"]) == ("/path?q", API)


def test_headers_about_the_connection_stay_on_it(make_lab: MakeLab) -> None:
    lab = make_lab()
    lab.ask(
        "GET",
        "/",
        {"Connection": "X-Hop, close", "X-Hop": "1", "Keep-Alive": "1", "Upgrade": "h2c", "X-End": "2"},
    )
    names = [name for name, _ in lab.origins[API].seen[0]["headers"]]
    assert "x-end" in names
    assert not {"x-hop", "keep-alive", "upgrade", "connection"} & set(names)


# Rules, upstream, and what is told


def test_a_rule_on_requests_blocks_in_words_and_lets_the_rest_pass(make_lab: MakeLab) -> None:
    lab = make_lab({"allowed_hosts": [], "http": {"allow": ["GET api.example.com/repos/**"]}})
    assert lab.ask("GET", "/repos/a")[0] == 200
    status, headers, text = lab.ask("DELETE", "/repos/a")
    assert status == 403
    assert headers["x-proxy-error"] == "blocked-by-allowlist"
    assert b"Blocked by the sandbox: DELETE https://api.example.com/repos/a" in text
    assert b"Rule: network.http" in text
    assert [one["decision"].allowed for one in lab.reports] == [True, False]


@pytest.mark.parametrize(
    ("name", "value", "passes"),
    [
        ("X-HTTP-Method-Override", "DELETE", False),
        ("X_HTTP_Method_Override", "DELETE", False),
        ("x-http-method", "delete", False),
        ("X-Method-Override", "GET", True),
        ("X-Original-URL", "/admin", False),
        ("X-Rewrite-Url", "https://api.example.com/admin", False),
        ("X-Original-URL", "/repos/b", True),
    ],
)
def test_a_field_that_servers_take_for_the_method_or_path_meets_the_same_rules(
    make_lab: MakeLab, name: str, value: str, passes: bool
) -> None:
    lab = make_lab({"allowed_hosts": [], "http": {"allow": ["GET api.example.com/repos/**"]}})
    assert lab.ask("GET", "/repos/a", {name: value})[0] == (200 if passes else 403)


def test_an_untrusted_origin_is_not_spoken_to(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}}, trust_origins=False)
    status, headers, text = lab.ask("GET", "/", {"Authorization": "Bearer x"})
    assert (status, headers["x-proxy-error"]) == (502, "upstream-failed")
    assert b"its certificate is not trusted" in text
    assert lab.origins[API].bytes_received == 0


def test_an_origin_that_dies_within_its_answer_is_not_taken_for_a_whole_one(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
        await writer.drain()
        writer.transport.abort()

    lab.origins[API].raw = die
    with pytest.raises((http.client.IncompleteRead, OSError)):
        lab.ask()
    lab.wait_until_idle()
    assert "cut short" in lab.reports[0]["decision"].reason
    lab.origins[API].raw = None
    assert lab.ask()[0] == 200  # others are not affected


def test_an_origin_that_answers_nonsense_gives_a_502(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        await writer.drain()

    lab.origins[API].raw = nonsense
    assert lab.ask()[0] == 502


def test_the_origins_end_of_an_idle_connection_reaches_the_tenant(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def one_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    lab.origins[API].raw = one_each
    connection = client(lab)
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"ok"
    assert connection.sock.recv(1) == b""  # it would wait for ever
    assert lab.origins[API].connections == 1


def test_a_malformed_request_is_a_400(make_lab: MakeLab) -> None:
    lab = make_lab()
    head = b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert lab.say(head + b"zz\r\n").startswith(b"HTTP/1.1 400 ")
    assert lab.say(b"GET /a#b HTTP/1.1\r\nHost: api.example.com\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_request_line_of_sixty_kilobytes_works(make_lab: MakeLab) -> None:
    lab = make_lab()
    lab.say(b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
    assert len(lab.origins[API].seen[0]["target"]) == 60_001


def test_no_trailer_of_a_request_is_added_to_the_head_that_was_judged(make_lab: MakeLab) -> None:
    lab = make_lab()
    head = b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    lab.say(head + b"1\r\nx\r\n0\r\nContent-Length: 9\r\nHost: 9\r\nX-Sum: 9\r\nX_Api_Key: 9\r\n\r\n")
    seen = lab.origins[API].seen[-1]
    assert seen["body"] == b"x" and [name for name, value in seen["headers"] if value == "9"] == []


def test_a_responses_trailers_do_not_change_its_framing(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
        writer.write(b"Content-Length: 9\r\nConnection: X-Own\r\nX-Own: 1\r\nGrpc-Status: 0\r\n\r\n")
        await writer.drain()

    lab.origins[API].raw = answer
    text = lab.say(b"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
    assert text.endswith(b"\r\n1\r\nx\r\n0\r\nGrpc-Status: 0\r\n\r\n")


def test_plain_http_is_inspected_as_well(make_lab: MakeLab) -> None:
    lab = make_lab({"http": {"deny": ["GET api.example.com/private"]}})
    lab.destination_port = 80
    assert b" 200 " in lab.say(b"GET /x HTTP/1.0\r\nHost: api.example.com\r\n\r\n", tls=False)
    assert b" 403 " in lab.say(b"GET /private HTTP/1.0\r\nHost: api.example.com\r\n\r\n", tls=False)
    assert len(lab.plain.seen) == 1


# Pure parts, fuzzed


@given(st.binary(max_size=300))
def test_no_head_however_mangled_does_anything_but_pass_or_be_refused(data: bytes) -> None:
    for look in (refuse_ambiguous_head, refuse_no_request, lambda d: refuse_other_host(d, "a.example", 443)):
        try:
            look(data)
        except BadMessage as problem:
            assert 400 <= problem.status < 500


@given(st.text(max_size=60), st.sampled_from(["GET", "OPTIONS", "CONNECT"]), st.binary(max_size=20) | st.none())
def test_a_target_is_a_path_or_refused(target: str, method: str, host: bytes | None) -> None:
    try:
        path, _ = origin_form(method, target, host, "https")
    except (BadMessage, UnicodeEncodeError):
        return
    assert path.startswith("/") or path == "*"


@given(
    st.lists(st.tuples(st.sampled_from([b"Connection", b"X", b"TE", b"Y"]), st.sampled_from([b"X", b"close", b"1"])))
)
def test_what_connection_names_is_left_out(pairs: list[tuple[bytes, bytes]]) -> None:
    kept = {name for name, _ in end_to_end(pairs)}
    assert not kept & {b"Connection", b"TE"}
    if (b"Connection", b"X") in pairs:
        assert b"X" not in kept


def test_chunks_that_come_together_are_inspected_together() -> None:
    pieces: list[bytes] = []
    trailers: list[tuple[bytes, bytes]] = []

    class Tenant:
        said = [b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1000]
        said += [b"1\r\ny\r\n0\r\nX-Sum: 1\r\n\r\n"]
        ended = False

        async def read(self) -> bytes:
            return self.said.pop(0) if self.said else b""

        async def write(self, data: bytes) -> None:
            pass

        def close(self) -> None:
            pass

        abort = close

    async def handle(request: Request) -> Response:
        while piece := await request.stream.read():
            pieces.append(piece)
        trailers.extend(request.stream.trailers)
        return Response(204, Headers())

    asyncio.run(Http1Tenant(Tenant(), "https", "a.test", 443, handle).serve())
    assert pieces == [b"x" * 1000, b"y"]
    assert trailers == [(b"X-Sum", b"1")]
