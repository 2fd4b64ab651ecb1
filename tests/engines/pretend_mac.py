"""Runs a script (stdin) on what is as much of a Mac as Linux can be: `python pretend_mac.py SANDBOX_EXEC`.

Removes every call of the standard library that macOS lacks, refuses /proc and /sys, and the modules that
scripts/mypy-darwin.ini names as Linux's own. macOS asks a socket for its peer in a way of its own, so that one
question is answered here.
"""

from __future__ import annotations

import _socket
import configparser
import fcntl
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).resolve().parents[2]
MISSING: dict[ModuleType, tuple[str, ...]] = {
    os: ("pidfd_open", "pipe2", "memfd_create", "splice", "O_PATH", "getxattr", "setxattr", "listxattr", "eventfd",
         "sched_getaffinity", "removexattr", "SPLICE_F_MOVE", "SPLICE_F_NONBLOCK", "waitid", "O_TMPFILE"),
    select: ("epoll",),
    signal: ("pidfd_send_signal",),
    fcntl: ("F_SETPIPE_SZ", "F_OFD_SETLK", "F_OFD_SETLKW"),
    socket: ("SO_PEERCRED", "SO_PASSCRED", "SCM_CREDENTIALS", "MSG_CMSG_CLOEXEC", "SOCK_CLOEXEC", "AF_NETLINK"),
    _socket: ("SO_PEERCRED", "SO_PASSCRED", "SCM_CREDENTIALS", "MSG_CMSG_CLOEXEC", "SOCK_CLOEXEC", "AF_NETLINK"),
}  # fmt: skip


def linux_only() -> list[str]:
    """The modules that a Mac never loads."""
    settings = configparser.ConfigParser()
    settings.read(REPOSITORY / "scripts/mypy-darwin.ini")
    ignored = [name for name in settings.sections() if settings[name].get("ignore_errors")]
    return [module.removesuffix(".*") for name in ignored for module in name.removeprefix("mypy-").split(",")]


class Refuse:
    """Refuses to import what only Linux has."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if any(name == one or name.startswith(f"{one}.") for one in linux_only()):
            raise ImportError(f"{name} is not for a Mac")


def watch(event: str, arguments: Sequence[object]) -> None:
    if event == "open" and str(arguments[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(f"{arguments[0]}: a Mac has no such file")
    if event in ("socket.bind", "socket.connect") and "/proc/" in str(arguments[1]):
        raise FileNotFoundError(f"{arguments[1]}: a Mac has no such file")


def become_a_mac() -> None:
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"
    sys.meta_path.insert(0, Refuse())
    sys.addaudithook(watch)


def main() -> None:
    import asyncio  # noqa: F401 - the standard library's own loop asks the platform when it is loaded
    import selectors
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401

    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]  # it was chosen when it was loaded
    script, sys.argv = sys.stdin.read(), sys.argv[1:]
    become_a_mac()
    from sandbox.engines import seatbelt_profile
    from sandbox.rpc import same_user

    seatbelt_profile.SANDBOX_EXEC = sys.argv[0]
    same_user.peer_user = lambda connection: os.geteuid()  # type: ignore[assignment, misc]
    exec(compile(script, "<script>", "exec"), {"__name__": "script"})


if __name__ == "__main__":
    main()
