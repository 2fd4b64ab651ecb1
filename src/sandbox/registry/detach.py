"""`sandbox run --detach`: the owner goes to the background, whoever asked gets the id."""

from __future__ import annotations

import os
import sys

from sandbox.i18n import _
from sandbox.registry.output_log import Log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_NOT_STARTED = 125  # as `sandbox run` says "it was me, not your command"


class Background:
    """The owner's side: tells the one in front how the start went, and moves output into the log."""

    def __init__(self, report: int) -> None:
        self._report = report
        self._log: Log | None = None

    def print_to(self, log: str) -> None:
        """From here on descriptors 1 and 2 are the sandbox's log, 0 is empty."""
        self._log = Log(log)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.dup2(self._log.descriptor, 1)
        os.dup2(self._log.descriptor, 2)
        os.close(empty)

    def started(self, id: str) -> None:
        """The sandbox lives, and its command runs."""
        self._tell(f"0 {id}")

    def failed(self, status: int, reason: str) -> None:
        """It does not: how the one in front ends, and what it prints."""
        self._tell(f"{status} {reason}")

    def finish(self) -> None:
        """Everything printed reaches the log before the process goes."""
        for descriptor in (1, 2):
            empty = os.open(os.devnull, os.O_WRONLY)
            os.dup2(empty, descriptor)
            os.close(empty)
        if self._log is not None:
            self._log.close()

    def _tell(self, text: str) -> None:
        if self._report >= 0:
            os.write(self._report, text.encode("utf-8", "replace")[:60000])
            os.close(self._report)
            self._report = -1


def detach(own: Callable[[Background], int]) -> int:
    """Runs `own` in the background (`start`); prints the id, or why there is none. Returns the exit status for that."""
    status, text = start(own)
    if status == 0:
        print(text)
    else:
        print(f"sandbox: {text}", file=sys.stderr)
    return status


def start(own: Callable[[Background], int]) -> tuple[int, str]:
    """Runs `own` in a process of its own session; returns when it has called `started`: 0 and the id.

    Must be called before the process has threads. `own` calls `started` (or `failed`) exactly once; an exception before
    that counts as `failed`. Then the status is another, and the text is the reason.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    answers, report = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers)
        # A second fork: the owner must not be a session leader, or opening a terminal would make it controlling.
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        _behind(own, Background(report))
    os.close(report)
    os.waitpid(child, 0)
    answer = b""
    while piece := os.read(answers, 65536):
        answer += piece
    os.close(answers)
    status, _space, text = answer.decode("utf-8", "replace").partition(" ")
    if status == "0":
        return 0, text
    reason = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
    return int(status or _NOT_STARTED), reason or "the sandbox ended before it had started"


def _behind(own: Callable[[Background], int], background: Background) -> NoReturn:
    status = _NOT_STARTED
    try:
        status = own(background)
    except BaseException as problem:  # noqa: BLE001 - the one in front is the only place left to tell it
        status = getattr(problem, "exit_code", _NOT_STARTED)
        background.failed(status, _.text(problem) or type(problem).__name__)
    finally:
        background.finish()
        os._exit(status)
