"""`sandbox run --detach`: the owner goes to the background; the command in the foreground prints the id."""

from __future__ import annotations

import os
import sys

from sandbox.i18n import _
from sandbox.registry.output_log import Log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_NOT_STARTED = 125  # the exit status of `sandbox run` when sandbox itself failed, not the command


class Background:
    """The owner's side: reports how the start went, and sends output to the log."""

    def __init__(self, report: int) -> None:
        self._report = report
        self._log: Log | None = None

    def print_to(self, log: str) -> None:
        """Connects descriptors 1 and 2 to the sandbox's log, and 0 to nothing."""
        self._log = Log(log)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.dup2(self._log.descriptor, 1)
        os.dup2(self._log.descriptor, 2)
        os.close(empty)

    def started(self, id: str) -> None:
        """Reports that the sandbox and its command run."""
        self._tell(f"0 {id}")

    def failed(self, status: int, reason: str) -> None:
        """Reports that it did not start: the exit status and the message for the foreground."""
        self._tell(f"{status} {reason}")

    def finish(self) -> None:
        """Writes everything printed to the log. Call it before the process ends."""
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
    """Runs `own` in the background (see `start`); prints the id or the error. Returns the exit status."""
    status, text = start(own)
    if status == 0:
        print(text)
    else:
        print(f"sandbox: {text}", file=sys.stderr)
    return status


def start(own: Callable[[Background], int]) -> tuple[int, str]:
    """Runs `own` in a background process. Returns 0 and the id once it has called `started`.

    If it called `failed`, or raised an exception before either, returns another status and the reason. Must be called
    before the process has threads.
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
    except BaseException as problem:  # noqa: BLE001 - only the foreground process can still report it
        status = getattr(problem, "exit_code", _NOT_STARTED)
        background.failed(status, _.text(problem) or type(problem).__name__)
    finally:
        background.finish()
        os._exit(status)
