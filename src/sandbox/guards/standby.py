"""A process that cleans up projects if the owner is killed.

The walls fall with the owner, and so do the tenants, but then nobody looks at what they left for the host's git. So a
shell waits for the end of a pipe that the owner holds (with children that it forked: they hold the sandbox, too), and
then becomes a Python that does (`cli/standby.py`). An owner that ends in order kills the shell first.

There is one for all sandboxes of a process, in a session of its own: no Ctrl-C and no hangup ends it.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen

SHELL = "/bin/sh"
_WAIT = 'read line; exec "$@" < /dev/null'
# Behind the standard library: what a tenant may have left beside the package is never imported.
_REPAIR = "import sys; sys.path.append(sys.argv.pop(1)); from sandbox.cli.standby import main; main(*sys.argv[1:])"


class Standby:
    """The process for one registry and one record."""

    def __init__(self, home: str, record: str) -> None:
        self._words = (home, record)
        self._guests: dict[object, int] = {}  # whose tenants must be gone before anything is undone
        self._process: Popen[bytes] | None = None
        self._pipe = self._list = -1

    def add(self, pid: int) -> object:
        """`pid`: the first process of a sandbox. Returns what `remove` wants. Raises OSError when it cannot start."""
        if self._process is None:
            self._start()
        key = object()
        self._guests[key] = pid
        self._write()
        return key

    def remove(self, key: object) -> None:
        del self._guests[key]
        if self._guests:
            return self._write()
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._forget()

    def _forget(self) -> None:
        for descriptor in (self._pipe, self._list):
            if descriptor >= 0:
                os.close(descriptor)
        self._process, self._pipe, self._list = None, -1, -1

    def _write(self) -> None:
        """Where the shell's Python will read it: a shell cannot remember thousands of numbers."""
        data = " ".join(map(str, (os.getpid(), *self._guests.values()))).encode()
        os.pwrite(self._list, data, 0)
        os.ftruncate(self._list, len(data))

    def _start(self) -> None:
        import subprocess

        if sys.platform != "linux":  # elsewhere no engine has a namespace to watch
            raise OSError("only on Linux")
        place = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        ends, self._pipe = os.pipe()
        try:
            self._list = os.memfd_create("sandboxes")
            words = [sys.executable, "-I", "-c", _REPAIR, place, *self._words, str(self._list)]
            self._process = subprocess.Popen(
                [SHELL, "-c", _WAIT, "sandbox-standby", *words],
                stdin=ends,
                stdout=subprocess.DEVNULL,
                stderr=None if os.isatty(2) else subprocess.DEVNULL,  # never somebody's pipe, which would not end
                cwd="/",
                pass_fds=(self._list,),
                start_new_session=True,
            )
        except BaseException:
            self._forget()
            raise
        finally:
            os.close(ends)


class Standing:
    """That there is one, for one sandbox."""

    def __init__(self, home: str, record: str, pid: int) -> None:
        """`pid`: the first process of the sandbox. Raises OSError when there can be none."""
        self._owner = os.getpid()  # a forked child ends nothing of ours
        with _lock:
            self._standby = _standbys.setdefault((home, record), Standby(home, record))
            self._key: object | None = self._standby.add(pid)

    def close(self) -> None:
        """Call it when the projects have been checked. Idempotent."""
        with _lock:
            key, self._key = self._key, None
            if key is not None and os.getpid() == self._owner:
                self._standby.remove(key)


# Reentrant: a garbage collection under the lock may close a forgotten sandbox.
_lock = RLock()
_standbys: dict[tuple[str, str], Standby] = {}


def _start_over() -> None:
    """In a forked child, which has sandboxes of its own. It keeps its end of the pipe, as it does those of the guests:
    they live until it ends, too."""
    global _lock
    _lock = RLock()
    _standbys.clear()


os.register_at_fork(after_in_child=_start_over)
