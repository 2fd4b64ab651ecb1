"""The directory that a container gets from its owner: the guest, its filter, and the socket on which it reports.

Only the owner can access it, and it exists only until the guest has dropped its privileges.
"""

from __future__ import annotations

import os
import shutil

from sandbox import sockets as socket
from sandbox.config.home import home
from sandbox.engines.container.leftovers import SHELVES
from sandbox.engines.container.seccomp import profile
from sandbox.errors import EngineUnavailable
from sandbox.guest.binary import guest_binary

CONTROL = "control"


class GuestDirectory:
    """Made for one container. Call `remove` once the guest has reported, or never will."""

    def __init__(self, identity: str, *, listens: bool = True) -> None:
        """`listens`: the guest can connect to a socket of ours. Raises EngineUnavailable, OSError."""
        self.path = os.path.join(os.path.realpath(home()), SHELVES, identity)
        if any(sign in self.path for sign in ',"\n'):  # commas separate a mount's fields
            raise EngineUnavailable("{path!r} cannot be named to a container engine; set SANDBOX_HOME", path=self.path)
        os.makedirs(self.path, 0o700)
        try:
            os.chmod(self.path, 0o700)
            shutil.copyfile(guest_binary(), f"{self.path}/guest")
            os.chmod(f"{self.path}/guest", 0o755)
            self._listener = self._listen() if listens else None
            if listens:
                with open(f"{self.path}/seccomp.json", "w", encoding="ascii") as file:
                    file.write(profile())
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    @property
    def listener(self) -> socket.socket:
        """Where the guest reports."""
        assert self._listener is not None
        return self._listener

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fchmod(listener.fileno(), 0o600)  # before it has a name, so that nobody else can ever connect
            listener.bind(socket.address_in(self.path, directory, CONTROL))
            listener.listen(1)
        except BaseException:
            listener.close()
            raise
        finally:
            os.close(directory)
        return listener

    def remove(self) -> None:
        """Closes the socket and deletes the directory. Never raises; idempotent."""
        if self._listener is not None:
            self._listener.close()
        shutil.rmtree(self.path, ignore_errors=True)
