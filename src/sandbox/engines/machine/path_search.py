"""Looking for a program outside the machine, in the room's own files: inside, each directory of PATH that has no such
program costs several questions to the file server, and a machine that has just started has to learn how to ask."""

from __future__ import annotations

import os

from sandbox.config.openat2 import O_PATH
from sandbox.plan.mount_operations import Fuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandbox.plan.plan import Plan

STEP = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
KERNELS = ("/dev", "/proc", "/sys")  # a machine's are its own


class PathSearch:
    """Tells which directories of PATH lack a program, as the room whose guest is `room` shows them."""

    def __init__(self, room: int, plan: Plan, setup: dict[str, Any]) -> None:
        """`setup` is that of the machine's guest: what it has in its own memory, nobody outside can see."""
        machine = setup["machine"]
        own = [path for path, _, _ in machine["scratch"]]
        served = [os.fsencode(one.path) for one in plan.served if isinstance(one, Fuse)]  # may never answer
        self._unseen = tuple(one + b"/" for one in (*own, *served, *map(os.fsencode, KERNELS)))
        self._root = -1
        if "layer" in machine:  # everything may be changed, in memory
            return
        try:
            self._root = os.open(f"/proc/{room}/root", O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            pass  # an ordinary user may not look into every room; then the machine does it all

    def lacking(self, request: dict[str, object]) -> int:
        """How many of the first directories of the command's PATH have no such program."""
        words: list[bytes] = request.get("direct") or request["argv"]  # type: ignore[assignment]
        env: list[bytes] = request.get("env") or []  # type: ignore[assignment]
        name = words[0]
        if self._root < 0 or not name or b"/" in name or name in (b".", b".."):
            return 0
        path = next((one[5:] for one in reversed(env) if one.startswith(b"PATH=")), b"")
        count = 0
        for directory in path.split(b":")[:-1]:  # the last one is looked into inside, whatever it holds
            if not self._lacks(directory, name):
                break
            count += 1
        return count

    def _lacks(self, directory: bytes, name: bytes) -> bool:
        """False when it is not certain: a link is not followed here, since it leads elsewhere inside."""
        steps = directory.split(b"/")[1:]
        if (
            not directory.startswith(b"/")
            or (directory + b"/").startswith(self._unseen)
            or {b"", b".", b".."} & set(steps)
        ):
            return False
        at = os.dup(self._root)
        try:
            for step in steps:
                at = _moved(at, os.open(step, STEP, dir_fd=at))
            os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        finally:
            os.close(at)
        return False

    def close(self) -> None:
        """Idempotent."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1


def _moved(before: int, after: int) -> int:
    os.close(before)
    return after
