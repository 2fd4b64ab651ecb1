"""Processes of the host, by their pid: waiting for one to end, sending it signals, finding its parent.

Linux has pidfds and /proc. Other systems have neither: there a process is polled by its number, and `ps` describes it.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LINUX = sys.platform == "linux"
PS = "/bin/ps"  # not one from PATH: a project's directory may come first in it
_SHORTEST, _LONGEST = 0.005, 0.5  # seconds between two checks


class ProcessHandle:
    """A process that may end at any time. With a pidfd it can never be a later process with the same number."""

    def __init__(self, pid: int, *, pidfd: bool = LINUX) -> None:
        """Raises ProcessLookupError when there is no such process."""
        self._pid = pid
        self._fd = -1
        if sys.platform == "linux" and pidfd:
            self._fd = os.pidfd_open(pid)
        elif not self._exists():
            raise ProcessLookupError(pid)

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError when it has ended."""
        if sys.platform == "linux" and self._fd >= 0:
            import signal

            signal.pidfd_send_signal(self._fd, number)
        else:
            os.kill(self._pid, number)

    def wait(self, timeout: float, *, wake: int | None = None) -> bool:
        """Waits until the process has ended, or `wake` is readable. False when neither happened in `timeout` seconds.

        Without a pidfd, a child that nobody has reaped counts as alive.
        """
        poll = select.poll()
        for fd in (self._fd, wake):
            if fd is not None and fd >= 0:
                poll.register(fd, select.POLLIN)
        if self._fd >= 0:
            return bool(poll.poll(timeout * 1000))
        until, pause = time.monotonic() + timeout, _SHORTEST
        while self._exists():
            left = until - time.monotonic()
            if poll.poll(max(0.0, min(pause, left)) * 1000):
                return True
            if left <= 0:
                return False
            pause = min(2 * pause, _LONGEST)
        return True

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.wait(0)

    def close(self) -> None:
        """Gives the descriptor back. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _exists(self) -> bool:
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's
        return True


def descendants(pid: int, most: int | None = None, *, proc: bool = LINUX) -> list[int]:
    """The processes below `pid` whose parents are all alive. With `most`, the search ends at that number."""
    children = _children if proc else _children_from_ps()
    found: list[int] = []
    waiting, seen = [pid], {pid}
    while waiting and (most is None or len(found) < most):
        for child in children(waiting.pop()):
            if child not in seen:
                seen.add(child)
                waiting.append(child)
                found.append(child)
    return found


def _children(pid: int) -> list[int]:
    """The children of each of its threads; none when it has ended."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
        except (OSError, ValueError):
            continue  # this one has ended
    return found


def _children_from_ps() -> Callable[[int], list[int]]:
    import subprocess

    listed = subprocess.run([PS, "-axo", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        pid, parent = line.split()
        children.setdefault(int(parent), []).append(int(pid))
    return lambda pid: children.get(pid, [])


def parent_and_program(pid: int, *, proc: bool = LINUX) -> tuple[int, str]:
    """The parent of a process, and the name of the program it runs. Raises OSError or ValueError."""
    if not proc:
        parent, _, program = ps(pid, "ppid", "comm").strip().partition(" ")
        return int(parent), os.path.basename(program.strip())
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        parent = file.read().rpartition(")")[2].split()[1]
    return int(parent), os.path.basename(os.readlink(f"/proc/{pid}/exe"))


def ps(pid: int, *columns: str) -> str:
    """What `ps` says about a process, the same in every language and time zone. Empty when there is no such process."""
    import subprocess

    command = [PS, *(word for column in columns for word in ("-o", f"{column}=")), "-p", str(pid)]
    plain = {"LC_ALL": "C", "TZ": "UTC"}
    return subprocess.run(command, env=plain, capture_output=True, text=True, check=False).stdout.strip()
