"""Downloading one file of known size and digest: resumed, retried, and in place only when complete."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import time
from typing import TYPE_CHECKING

from sandbox.errors import ImageError
from sandbox.images import store
from sandbox.images.web import TRANSIENT, ErrorStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.images.progress import Progress
    from sandbox.images.web import Web

PIECE = 1 << 18
TRIES = 6
FIRST_PAUSE = 0.5  # seconds, doubled each time
LONGEST_PAUSE = 20.0
SLOWEST, SLOW_FOR = 1024, 60.0  # fewer bytes a second than this, for this many seconds, counts as a failure


class Wanted:
    """A file to download. `headers` is called for each try and returns the headers with secrets."""

    def __init__(
        self, url: str, digest: str, size: int, *, headers: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        self.url = url
        self.digest = digest
        self.size = size
        self.headers = headers or dict


def blob_path(digest: str) -> str:
    """Where a downloaded file is kept."""
    return os.path.join(store.directory(), "blobs", digest.removeprefix("sha256:"))


def download(web: Web, wanted: Wanted, progress: Progress, *, sleep: Callable[[float], object] = time.sleep) -> str:
    """Downloads a file, unless it exists already. Returns its path. If several processes want the same file, one
    downloads it and the others wait. Raises ImageError; a partial download is kept for the next time, unless it was
    wrong."""
    target = blob_path(wanted.digest)
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    while True:
        part = os.open(f"{target}.part", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(part, fcntl.LOCK_EX)
            if os.path.exists(target):
                if os.path.lexists(f"{target}.part"):
                    os.unlink(f"{target}.part")
                return target
            if not os.path.lexists(f"{target}.part"):
                continue  # the process that held the lock before us removed it
            _complete(web, wanted, part, progress, sleep)
            os.fsync(part)
            os.rename(f"{target}.part", target)
            return target
        except _Wrong as problem:
            os.unlink(f"{target}.part")
            raise ImageError(problem.args[0]) from None
        finally:
            os.close(part)


class _Wrong(ImageError):
    """The content is not what was announced: none of it is worth keeping."""


class _Changed(Exception):
    """The server has another file now: the partial download is useless."""


def _complete(web: Web, wanted: Wanted, part: int, progress: Progress, sleep: Callable[[float], object]) -> None:
    pause, wrong = FIRST_PAUSE, False
    for again in range(TRIES, -1, -1):
        try:
            _append(web, wanted, part, progress)
            if _digest(part) == wanted.digest:
                return
            if wrong or not again:
                raise _Wrong("the content received for {digest} has another digest", digest=wanted.digest)
            wrong = True  # perhaps parts of two versions of the file: start over once
            os.ftruncate(part, 0)
            continue
        except _Changed:
            os.ftruncate(part, 0)
            problem: Exception = ImageError("the file changes while it is downloaded")
        except ErrorStatus as refused:
            if refused.status not in TRANSIENT:
                raise
            problem = refused
            pause = max(pause, _asked_to_wait(refused.headers))
        except (OSError, http.client.HTTPException) as failed:
            problem = failed
        if not again:
            raise ImageError("the download failed: {problem}", problem=ascii(str(problem))[1:-1]) from problem
        sleep(min(pause, LONGEST_PAUSE))
        pause *= 2


def _append(web: Web, wanted: Wanted, part: int, progress: Progress) -> None:
    """Downloads what is missing. Raises OSError when the connection ends too early."""
    have = os.fstat(part).st_size
    if have > wanted.size:
        os.ftruncate(part, 0)
        have = 0
    if have == wanted.size:
        return
    asked = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        answer = web.open(wanted.url, asked, wanted.headers())
    except ErrorStatus as refused:
        if refused.status == 416:
            raise _Changed from None
        raise
    with answer:
        if have and answer.status != 206:
            os.ftruncate(part, 0)
            have = 0
        elif have and _starts_at(answer.headers.get("Content-Range", ""), wanted.size) != have:
            raise _Changed
        _check_length(answer.headers.get("Content-Length"), wanted.size - have)
        os.lseek(part, have, os.SEEK_SET)
        progress.at(have)
        _copy(answer, part, have, wanted.size, progress)


def _copy(answer: http.client.HTTPResponse, part: int, have: int, size: int, progress: Progress) -> None:
    began, start = time.monotonic(), have
    while have < size:
        piece = answer.read1(min(PIECE, size - have))
        if not piece:
            raise OSError("the connection ended too early")
        os.write(part, piece)
        have += len(piece)
        progress.at(have)
        passed = time.monotonic() - began
        if passed > SLOW_FOR:
            if have - start < SLOWEST * passed:
                raise OSError("the server sends too slowly")
            began, start = time.monotonic(), have
    if answer.read1(1):
        raise _Wrong("the server sends more than the {size} bytes that were announced", size=size)


def _check_length(said: str | None, expected: int) -> None:
    if said is not None and (not said.isdecimal() or int(said[:20]) != expected):
        raise _Wrong("the server has another size for the file than was announced")


def _starts_at(said: str, size: int) -> int | None:
    """Where a partial answer begins; None when the file has another size."""
    span, _, whole = said.removeprefix("bytes ").partition("/")
    start = span.partition("-")[0]
    return int(start) if whole in (str(size), "*") and start.isdecimal() and len(start) < 20 else None


def _asked_to_wait(headers: Mapping[str, str]) -> float:
    said = headers.get("retry-after", "")
    return float(said) if said.isdecimal() and len(said) < 6 else 0.0


def _digest(part: int) -> str:
    os.lseek(part, 0, os.SEEK_SET)
    digest = hashlib.sha256()
    while piece := os.read(part, 1 << 20):
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def fetch_document(
    web: Web, url: str, most: int, headers: Mapping[str, str] | None = None, secret: Mapping[str, str] | None = None
) -> bytes:
    """Downloads a small file of unknown size, at most `most` bytes. Raises ImageError."""
    pause = FIRST_PAUSE
    for again in (True, True, False):
        try:
            with web.open(url, headers or {}, secret) as answer:
                data: bytes = answer.read(most + 1)
            if len(data) > most:
                raise ImageError("the image's description is too long")
            return data
        except ErrorStatus as refused:
            problem: Exception = refused
            if refused.status not in TRANSIENT:
                raise
        except (OSError, http.client.HTTPException) as failed:
            problem = failed
        if again:
            time.sleep(pause)
            pause *= 2
    raise ImageError("the download failed: {problem}", problem=ascii(str(problem))[1:-1]) from problem
