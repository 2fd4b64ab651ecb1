"""Starts the guest: one program with one socket to it, and nothing else inherited. For engines on this machine."""

from __future__ import annotations

import os
import select
import sys
from _signal import SIGKILL, SIGPIPE, SIGXFSZ  # without `signal`, whose enumerations take time to load

from sandbox import sockets as socket
from sandbox.guest import frames
from sandbox.guest.guest import Guest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LINUX = sys.platform == "linux"
CONTROL = 3  # the guest's end of the socket
SOME = 64  # descriptors: more than a few sandboxes use, so there may be many sandboxes later
MANY = 256  # with more open descriptors than this, `spawn.posix_spawn` is faster
_SAID = 8192  # the most bytes of a failed launcher's message


class Launch:
    """A started guest that has not been set up yet. Either `greet` succeeds, or `abandon` releases everything."""

    def __init__(self, argv: list[str], fds: Sequence[tuple[int, int]] = ()) -> None:
        """Starts `argv` with a socket on descriptor 3, and `fds` as pairs of (ours, theirs). Raises OSError."""
        ours, theirs = socket.socketpair()
        # The kernel then says who sends the first message: the guest's pid in our own namespace.
        if LINUX:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        said, saying = os.pipe()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        # posix_spawn duplicates in order: no target may be a descriptor that is still needed.
        high = [(_above(fd), target) for fd, target in ((theirs.fileno(), CONTROL), *fds)]
        actions = [
            (os.POSIX_SPAWN_DUP2, null, 0),
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, saying, 2),
            *((os.POSIX_SPAWN_DUP2, fd, target) for fd, target in high),
        ]
        try:
            # In a process group of its own it does not get the terminal's Ctrl-C: the owner decides what that means.
            self.pid = _spawner(theirs.fileno(), len(actions) - 1)(
                argv[0], argv, {}, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_defaults()
            )
        except BaseException:
            ours.close()
            os.close(said)
            raise
        finally:
            theirs.close()
            frames.close_all([saying, null, *(fd for fd, _ in high)])
        self._said = said
        self._channel = ours
        self._reaped = False
        self.guest = Guest(ours)
        self.guest_pid = 0

    def greet(self) -> None:
        """Receives the guest's first message. Raises SandboxClosed when the launcher ended instead."""
        if LINUX:
            self.guest_pid = frames.sender_pid(self._channel)
            self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        self.guest.greet()

    def words(self) -> str:
        """What the launcher wrote to stderr, for an error message."""
        os.set_blocking(self._said, False)
        try:
            return os.read(self._said, _SAID).decode(errors="replace").strip()
        except OSError:
            return ""

    def abandon(self) -> None:
        """Kills and reaps whatever was started. Never raises; safe to call twice."""
        self.guest.close()
        if self._reaped:
            return
        self._reaped = True
        # The guest ends everything when its socket closes; one that does not react is killed.
        reap(self.pid, patience=5.0)
        os.close(self._said)


def reap(pid: int, patience: float, *, pidfds: bool = LINUX) -> None:
    """Waits for a child to end, kills it when patience runs out, and collects it."""
    if not (sys.platform == "linux" and pidfds):
        return _reap_by_asking(pid, patience)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        pidfd = -1
    try:
        if pidfd >= 0:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(patience * 1000):
                os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
    except (ChildProcessError, ProcessLookupError):
        pass  # another SIGCHLD handler has reaped it
    finally:
        if pidfd >= 0:
            os.close(pidfd)


def _reap_by_asking(pid: int, patience: float) -> None:
    import time

    until = time.monotonic() + patience
    try:
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                os.kill(pid, SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.005)
    except (ChildProcessError, ProcessLookupError):
        pass  # another SIGCHLD handler has reaped it


def _spawner(lowest: int, passed: int) -> Callable[..., int]:
    """The function to start a program with, given `passed` descriptors to pass on. `lowest` is a descriptor number that
    was just the lowest free one, and so grows with the number of open descriptors."""
    if lowest < SOME or not LINUX:
        return os.posix_spawn
    if lowest < MANY:
        from sandbox.engines.spawn import reserve

        reserve(passed)
        return os.posix_spawn
    from sandbox.engines.spawn import posix_spawn

    return posix_spawn


def _above(fd: int) -> int:
    """A duplicate of `fd` that no target descriptor can collide with."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16)


def _defaults() -> list[int]:
    # Python ignores SIGPIPE and SIGXFSZ; what we start must not inherit that.
    return [SIGPIPE, SIGXFSZ]
