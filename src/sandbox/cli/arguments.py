"""Removes values from this process's arguments, which everybody on the machine can read.

Programs that take a password as an argument (curl, mysql) do the same. The value is still visible for a moment at the
start; `--env NAME`, which takes the value from the environment, never shows it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_ARG_START, _ARG_END = 47, 48  # of /proc/self/stat, counted from 0


def hide_in_arguments(values: Iterable[str]) -> None:
    """Overwrites each of `values` in this process's arguments, as `ps` shows them. Does nothing where there is no
    /proc."""
    import os

    hidden = sorted((os.fsencode(value) for value in values if value), key=len, reverse=True)
    if not hidden:
        return
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # What follows the name in parentheses begins with the third field.
        start, end = int(fields[_ARG_START - 2]), int(fields[_ARG_END - 2])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            arguments = memory.read(end - start)
            for value in hidden:
                arguments = arguments.replace(value, b"*" * len(value))
            memory.seek(start)
            memory.write(arguments)
    except (OSError, ValueError, IndexError):
        return
