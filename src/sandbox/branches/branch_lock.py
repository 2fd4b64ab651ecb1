"""One sandbox at a time works on a branch: a lock outside the repository, which the kernel gives back after a crash."""

from __future__ import annotations

import fcntl
import os

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.branches.target import Target


class InUse:
    """Held until `close`, or until the process ends."""

    def __init__(self, home: str, target: Target) -> None:
        """Raises SandboxError when another sandbox works on the branch."""
        from hashlib import sha256

        info = os.stat(target.common)
        what = f"{info.st_dev:x}:{info.st_ino:x}:{target.name}"
        directory = os.path.join(home, "branches")
        os.makedirs(directory, 0o700, exist_ok=True)
        path = os.path.join(directory, sha256(os.fsencode(what)).hexdigest()[:32])
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            self._fd = -1
            raise SandboxError(
                "another sandbox works on the branch {name}; wait for it, or name another branch", name=target.name
            ) from None

    def close(self) -> None:
        """Gives it back. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()
