"""`sandbox logs ID`: shows what a detached sandbox printed. (`sandbox audit` shows the record.)"""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import shown
from sandbox.config.home import home
from sandbox.i18n import _
from sandbox.registry.registry import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_EVERY = 0.2  # seconds between checks of a log with --follow


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", help=_("the sandbox's id, or the beginning of it"))
    parser.add_argument("--follow", "-f", action="store_true", help=_("keep printing until the sandbox ends"))
    parser.add_argument("--raw", action="store_true", help=_("print raw bytes, even to a terminal"))


def run(arguments: Namespace) -> int:
    entry = find(home(), arguments.id)
    show = _raw if arguments.raw or not os.isatty(1) else _safely
    for path in (f"{entry.log}.1", entry.log):
        log = _Log(path)
        show(log.read())
    if arguments.follow:
        _follow(log, entry.id, show)
    return 0


class _Log:
    """A log file that may not exist yet, and is replaced by a new one when it is full."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0
        self._inode = 0

    def read(self) -> bytes:
        """What was added since the last call."""
        try:
            with open(self._path, "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._at = inode, 0
                file.seek(self._at)
                more = file.read()
                self._at += len(more)
                return more
        except FileNotFoundError:
            return b""


def _follow(log: _Log, id: str, show: object) -> None:
    import time

    from sandbox.errors import NotFound

    running = True
    while running:
        try:
            running = find(home(), id).running  # checked before the last read, so that the last output is shown
        except NotFound:
            running = False
        more = log.read()
        if more:
            show(more)  # type: ignore[operator]
        elif running:
            time.sleep(_EVERY)


def _raw(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _safely(data: bytes) -> None:
    # Line ends, tabs and printable characters pass. Those that a terminal would obey (escapes), or that make a
    # line look different (direction controls, invisible characters), are escaped, as in `diff`.
    sys.stdout.write(shown(data.decode("utf-8", "replace"), keep="\n\t"))
    sys.stdout.flush()
