"""Files over HTTP: ranges, streamed uploads, and the answers for what is not there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.server.serving import Served


@pytest.fixture(scope="module")
def files(served: Served, box: str) -> str:
    return f"/v1/sandboxes/{box}/files"


def test_a_large_file_comes_back_as_it_was_sent(served: Served, files: str) -> None:
    content = bytes(range(256)) * 20_000  # five pieces

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(content), 300_000):
            yield content[at : at + 300_000]

    assert served.http.put(f"{files}/content?path=/tmp/large&mode=384", content=pieces()).status_code == 200
    answer = served.http.get(f"{files}/content?path=/tmp/large")
    assert answer.content == content
    assert answer.headers["content-disposition"] == "attachment"
    assert served.http.get(f"{files}/stat?path=/tmp/large").json()["mode"] == 0o600
    assert served.http.put(f"{files}/content?path=/tmp/large", content=b"").status_code == 200
    assert served.http.get(f"{files}/content?path=/tmp/large").content == b""


@pytest.mark.parametrize(
    ("asked", "status", "content", "told"),
    [
        ("bytes=2-4", 206, b"cde", "bytes 2-4/10"),
        ("bytes=7-", 206, b"hij", "bytes 7-9/10"),
        ("bytes=-2", 206, b"ij", "bytes 8-9/10"),
        ("bytes=0-99", 206, b"abcdefghij", "bytes 0-9/10"),
        ("bytes=-99", 206, b"abcdefghij", "bytes 0-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=5-2", 416, None, "bytes */10"),
        ("bytes=1-2,4-5", 200, b"abcdefghij", None),
        ("lines=1-2", 200, b"abcdefghij", None),
        ("bytes=-", 200, b"abcdefghij", None),
    ],
)
def test_ranges(served: Served, files: str, asked: str, status: int, content: bytes | None, told: str | None) -> None:
    served.http.put(f"{files}/content?path=/tmp/ten", content=b"abcdefghij")
    answer = served.http.get(f"{files}/content?path=/tmp/ten", headers={"Range": asked})
    assert answer.status_code == status
    assert answer.headers.get("content-range") == told
    assert content is None or answer.content == content


def test_the_small_operations(served: Served, files: str) -> None:
    def do(what: str, **asked: object) -> None:
        answer = served.http.post(f"{files}/{what}", json=asked)
        assert answer.status_code == 200, answer.text

    do("mkdir", path="/tmp/d/e")
    served.http.put(f"{files}/content?path=/tmp/d/e/f", content=b"x")
    do("chmod", path="/tmp/d/e/f", mode=0o600)
    do("rename", old="/tmp/d/e/f", new="/tmp/d/g")
    do("symlink", target="g", path="/tmp/d/link")
    names = {one["name"]: one["kind"] for one in served.http.get(f"{files}?path=/tmp/d").json()["files"]}
    assert names == {"e": "directory", "g": "file", "link": "symlink"}
    assert served.http.get(f"{files}/link?path=/tmp/d/link").json() == {"target": "g"}
    do("remove", path="/tmp/d", recursive=True)
    assert served.http.get(f"{files}/stat?path=/tmp/d").status_code == 404


def test_what_cannot_be_done_says_why(served: Served, files: str) -> None:
    assert served.http.get(f"{files}/content?path=/tmp/nothing").status_code == 404
    assert served.http.get(f"{files}/content").json()["error"]["field"] == "path"
    assert served.http.get(f"{files}?path=/etc/passwd").status_code == 409
    assert served.http.post(f"{files}/mkdir", json={"path": "/tmp", "parents": False}).status_code == 409
    assert served.http.put(f"{files}/content?path=/usr/x", content=b"").status_code == 403
    assert served.http.post(f"{files}/chmod", json={"path": "/tmp", "mode": 9999}).status_code == 400


def test_an_upload_over_the_limit_is_413_before_it_is_sent(served: Served, files: str) -> None:
    host, _, port = served.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        head = f"PUT {files}/content?path=/tmp/x HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {served.token}\r\n"
        line.sendall(f"{head}Content-Length: {2**40}\r\n\r\n".encode())
        assert line.recv(12) == b"HTTP/1.1 413"


def test_a_range_with_thousands_of_digits_is_416(served: Served, files: str) -> None:
    served.http.put(f"{files}/content?path=/tmp/ranged", content=b"x")
    for asked in (f"bytes={'9' * 5000}-", f"bytes=-{'9' * 5000}", f"bytes=0-{'9' * 5000}"):
        answer = served.http.get(f"{files}/content?path=/tmp/ranged", headers={"range": asked})
        assert answer.status_code == 416
