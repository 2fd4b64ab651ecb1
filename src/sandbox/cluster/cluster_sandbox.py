"""A sandbox on a machine of a cluster, which can continue on another one when the machine is lost."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

from sandbox.client import Client
from sandbox.cluster import travel
from sandbox.errors import InvalidArgument, SandboxLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.cluster.checkpoints import Saving
    from sandbox.cluster.travel import Sent
    from sandbox.rpc.connection import Connection
    from sandbox.sandbox import Sandbox


class ClusterSandbox(Client):
    """A sandbox on a machine of the cluster. `node` is Ray's id of the machine.

    When the machine or its agent is gone, calls raise SandboxLost. With `checkpoints`, only calls in progress do: the
    next call finds the sandbox on another machine, with the files of the last checkpoint. `recovered` counts how often
    that happened. It ends when it is closed, or with this process.
    """

    node: str = ""
    recovered: int = 0
    _sent: Sent | None = None
    _saving: Saving | None = None
    _release: Callable[[], object] = staticmethod(lambda: None)
    _recover: Callable[[ClusterSandbox], None] | None = None
    _line: Connection
    _closing = False

    def __new__(cls, *_: object, **__: object) -> ClusterSandbox:
        made = super().__new__(cls)
        made._recovering = RLock()
        return made

    _recovering: RLock

    @property
    def _closed(self) -> bool:
        return self._closing or self._line.ended

    @property
    def _connection(self) -> Connection:
        if self._recover is not None and self._line.ended and not self._closing:
            with self._recovering:
                if self._line.ended and not self._closing:
                    self._recover(self)
        return self._line

    @_connection.setter
    def _connection(self, connection: Connection) -> None:
        self._line = connection

    def save(self) -> None:
        """Makes a checkpoint now. Raises InvalidArgument without a policy, SandboxError when it cannot be kept."""
        if self._saving is None:
            raise InvalidArgument("this sandbox was made without checkpoints")
        self._saving.now()

    def bring_back(self) -> Sandbox:
        """Returns a sandbox on this machine with the changes of this one in its overlay: review and apply them there.

        Raises InvalidArgument when no project was sent, SandboxError for a path that was also changed here.
        """
        if self._sent is None:
            raise InvalidArgument("no project was sent with this sandbox")
        return travel.bring_back(self, self._sent)

    def close(self, grace: float = 0.0) -> None:
        """Ends the sandbox and gives its place back. Idempotent.

        Running commands have `grace` seconds to end by themselves; no new one is started meanwhile.
        """
        self._closing = True
        if self._saving is not None:
            self._saving.close()
        try:
            super().close(grace)
        except SandboxLost:
            self._line.close()
        self._release()

    def __repr__(self) -> str:
        return f"<ClusterSandbox {self.id} on {self.node[:12]}{' closed' if self._line.ended else ''}>"
