"""Downloads from servers that fail, lie and lead astray: the right file, or a clear error and nothing left."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ImageError
from sandbox.images.download import TRIES, Wanted, blob_path, download, fetch_document
from sandbox.images.progress import ShownProgress
from sandbox.images.web import Web
from tests.images.servers import Request, Server, serving

CONTENT = os.urandom(300_000)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


class Quiet:
    def at(self, done: int) -> None:
        pass


def get(server: Server, path: str = "/file", **more: int | str) -> bytes:
    """Downloads; returns what was got. Pauses take no time."""
    pauses: list[float] = []
    wanted = Wanted(f"{server.url}{path}", str(more.get("digest", DIGEST)), int(more.get("size", len(CONTENT))))
    found = download(Web(server.url), wanted, Quiet(), sleep=pauses.append)
    assert pauses == sorted(pauses)
    return Path(found).read_bytes()


def left() -> list[str]:
    place = os.path.dirname(blob_path(DIGEST))
    return sorted(os.listdir(place)) if os.path.isdir(place) else []


def cut(request: Request, content: bytes, at: int, status: int = 200, **headers: str) -> None:
    """Announces everything and sends a part."""
    request.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(content[:at])
    request.close_connection = True


def test_a_file_is_downloaded_once(empty_store: Path, server: Server) -> None:
    server.file("/file", CONTENT)
    assert get(server) == CONTENT
    assert get(server) == CONTENT
    assert len(server.seen) == 1
    assert left() == [DIGEST[7:]]


def test_a_download_that_is_cut_off_continues_where_it_ended(empty_store: Path, server: Server) -> None:
    def answer(request: Request) -> None:
        start = int((request.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        rest = CONTENT[start:]
        kept = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
        cut(request, rest, 100_000, 206 if start else 200, **({"Content_Range": kept} if start else {}))

    server.answers["/file"] = answer
    assert get(server) == CONTENT
    ranges = [asked for _, asked, _ in server.seen]
    assert ranges[0] is None and ranges[1] == "bytes=100000-"


def test_a_download_from_a_server_without_ranges_starts_over(empty_store: Path, server: Server) -> None:
    def answer(request: Request) -> None:
        cut(request, CONTENT, 1000) if len(server.seen) == 1 else request.say(200, CONTENT)

    server.answers["/file"] = answer
    assert get(server) == CONTENT


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_busy_server_is_asked_again(empty_store: Path, server: Server, status: int) -> None:
    def answer(request: Request) -> None:
        request.say(200, CONTENT) if len(server.seen) > 3 else request.say(status, Retry_After="0")

    server.answers["/file"] = answer
    assert get(server) == CONTENT


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_is_not_repeated(empty_store: Path, server: Server, status: int) -> None:
    server.answers["/file"] = lambda request: request.say(status)
    with pytest.raises(ImageError, match=f"127.0.0.1 answered {status}"):
        get(server)
    assert len(server.seen) == 1


def test_a_server_that_always_fails_is_given_up(empty_store: Path, server: Server) -> None:
    server.answers["/file"] = lambda request: request.say(500)
    with pytest.raises(ImageError, match="the download failed"):
        get(server)
    assert len(server.seen) == TRIES + 1


def test_a_file_that_is_another_one_leaves_nothing(empty_store: Path, server: Server) -> None:
    server.file("/file", bytes(len(CONTENT)))
    with pytest.raises(ImageError, match="another digest"):
        get(server)
    assert left() == []


def test_a_file_that_is_another_one_at_the_last_try_is_not_taken_for_an_empty_one(
    empty_store: Path, server: Server
) -> None:
    def answer(request: Request) -> None:
        if len(server.seen) <= TRIES:
            return request.say(503)
        request.say(200, bytes(len(CONTENT)))

    server.answers["/file"] = answer
    with pytest.raises(ImageError, match="another digest"):
        get(server)
    assert left() == []


def test_another_version_in_the_middle_is_noticed_and_fetched_again(empty_store: Path, server: Server) -> None:
    def answer(request: Request) -> None:
        if len(server.seen) == 1:
            return cut(request, bytes(len(CONTENT)), 1000)  # the old version
        server.file("/file", CONTENT)
        server.answers["/file"](request)

    server.answers["/file"] = answer
    assert get(server) == CONTENT


def test_a_range_of_a_file_of_another_size_is_not_used(empty_store: Path, server: Server) -> None:
    def answer(request: Request) -> None:
        if request.headers.get("Range"):
            return request.say(206, CONTENT[1000:] + b"more", Content_Range=f"bytes 1000-300003/{len(CONTENT) + 4}")
        cut(request, CONTENT, 1000)

    server.answers["/file"] = answer
    with pytest.raises(ImageError, match="changes while|too early"):
        get(server)


@pytest.mark.parametrize("said", ["5", "99999999999999999999", "-1", "x"])
def test_a_length_that_is_not_the_announced_one_is_refused(empty_store: Path, server: Server, said: str) -> None:
    server.answers["/file"] = lambda request: request.say(200, CONTENT, Content_Length=said)
    with pytest.raises(ImageError):
        get(server)
    assert left() == [] or Path(blob_path(DIGEST)).exists() is False


def test_an_endless_answer_is_ended(empty_store: Path, server: Server) -> None:
    over = threading.Event()

    def answer(request: Request) -> None:
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        try:
            while True:
                request.wfile.write(bytes(65536))
        except OSError:
            over.set()
            raise

    server.answers["/file"] = answer
    with pytest.raises(ImageError, match="more than the 300000 bytes"):
        get(server)
    assert over.wait(20)
    assert left() == []


def test_an_endless_document_is_ended(empty_store: Path, server: Server) -> None:
    server.file("/file", bytes(100_000))
    with pytest.raises(ImageError, match="too long"):
        fetch_document(Web(server.url), f"{server.url}/file", 50_000)


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/x",
        "https://[::1]/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://0x7f000001/x",
        "http://localhost:1/x",
        "https://127.0.0.1:2/x",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "http://example.com/plain",
        "https://user:password@example.com/",
        "//192.168.1.1/x",
    ],
)
def test_nobody_is_sent_to_a_private_address_or_another_protocol(
    empty_store: Path, server: Server, target: str
) -> None:
    server.answers["/file"] = lambda request: request.say(302, Location=target)
    with pytest.raises(ImageError):
        get(server)
    assert left() in ([], [f"{DIGEST[7:]}.part"])
    assert not os.path.exists(blob_path(DIGEST))


def test_a_redirect_to_a_name_of_a_private_address_is_refused_before_anybody_is_dialled(
    empty_store: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    real = socket.getaddrinfo

    def resolve(host: str, port: int, *more: object, **options: object) -> object:
        return real("127.0.0.1" if host == "innocent.example" else host, port, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    server.answers["/file"] = lambda request: request.say(302, Location="https://innocent.example/x")
    with pytest.raises(ImageError, match="not a public address"):
        get(server)


def test_a_redirect_on_the_same_server_is_followed_and_endless_ones_are_not(empty_store: Path, server: Server) -> None:
    server.file("/there", CONTENT)
    server.answers["/file"] = lambda request: request.say(307, Location="/there")
    server.answers["/round"] = lambda request: request.say(302, Location="/round")
    with pytest.raises(ImageError):
        get(server, "/round")
    assert get(server) == CONTENT


def test_a_secret_goes_to_the_named_server_alone(empty_store: Path) -> None:
    with serving() as first:
        first.answers["/file"] = lambda request: request.say(302, Location="/elsewhere")
        first.file("/elsewhere", CONTENT)
        wanted = Wanted(f"{first.url}/file", DIGEST, len(CONTENT), headers=lambda: {"Authorization": "Bearer s"})
        download(Web(first.url), wanted, Quiet())
        assert [authorization for _, _, authorization in first.seen] == ["Bearer s", None]


def test_two_who_want_the_same_file_download_it_once(empty_store: Path, server: Server) -> None:
    go = threading.Event()

    def answer(request: Request) -> None:
        go.wait(20)
        request.say(200, CONTENT)

    server.answers["/file"] = answer
    found: list[bytes] = []
    both = [threading.Thread(target=lambda: found.append(get(server))) for _ in range(2)]
    for one in both:
        one.start()
    go.set()
    for one in both:
        one.join()
    assert found == [CONTENT, CONTENT]
    assert len(server.seen) == 1 and left() == [DIGEST[7:]]


PROGRAM = """
import sys
from sandbox.images.download import Wanted, download
from sandbox.images.progress import ShownProgress
from sandbox.images.web import Web
url, digest, size = sys.argv[1:]
download(Web(url), Wanted(url, digest, int(size)), ShownProgress().file("x", 1))
"""


def test_a_killed_process_leaves_no_file_and_the_next_one_continues(empty_store: Path, server: Server) -> None:
    sent, never = threading.Event(), threading.Event()

    def answer(request: Request) -> None:
        cut(request, CONTENT, 200_000)
        sent.set()
        never.wait(20)

    server.answers["/file"] = answer
    words = [f"{server.url}/file", DIGEST, str(len(CONTENT))]
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, *words])
    assert sent.wait(20)
    part = Path(f"{blob_path(DIGEST)}.part")
    while not part.exists() or part.stat().st_size < 200_000:
        os.sched_yield()
    program.send_signal(signal.SIGKILL)
    program.wait()
    never.set()
    assert left() == [f"{DIGEST[7:]}.part"]
    server.file("/file", CONTENT)
    assert get(server) == CONTENT
    assert server.seen[-1][1] == "bytes=200000-"


def test_nothing_is_shown_where_nobody_watches(capfd: pytest.CaptureFixture[str]) -> None:
    with ShownProgress() as shown:
        shown.file("x", 10).at(5)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_name_size_and_rate() -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with ShownProgress(stream=terminal) as shown:
        shown.file("rootfs-minimal", 2_000_000).at(1_000_000)
    assert "rootfs-minimal" in terminal.getvalue() and "1.0/2.0 MB" in terminal.getvalue()
