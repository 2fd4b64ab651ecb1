"""Standard input, output and error of the command's own process, at its start and at its end."""

from __future__ import annotations

import os
import sys


def fill_standard_streams() -> None:
    """Opens a closed stdin, stdout or stderr as /dev/null. Otherwise the next file opened would take its place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            # Python has no such stream then, and would print on stdout what is meant for stderr.
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", closefd=False))  # noqa: SIM115 - to stay


def leave(status: int) -> None:
    """Ends the process at once. Everything is closed, and shutting the interpreter down takes as long as bwrap."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed, or the reader has gone
    os._exit(status)
