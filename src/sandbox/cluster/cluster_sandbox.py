"""A sandbox on a machine of a cluster, which can continue on another one when the machine is lost."""

from __future__ import annotations

from threading import Lock, RLock
from typing import TYPE_CHECKING, TypeVar

from sandbox.client import Client
from sandbox.cluster import travel
from sandbox.errors import InvalidArgument, SandboxClosed, SandboxLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sandbox.cluster.checkpoints import Saving
    from sandbox.cluster.travel import Sent
    from sandbox.rpc.connection import Connection
    from sandbox.sandbox import Sandbox


T = TypeVar("T")


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
    _forgotten: Callable[[], object] = staticmethod(lambda: None)
    _recover: Callable[[ClusterSandbox], None] | None = None
    _line: Connection
    _closing = False
    _orderly = False  # the agent itself has said that the sandbox has ended

    def __new__(cls, *_: object, **__: object) -> ClusterSandbox:
        made = super().__new__(cls)
        made._recovering, made._ending = RLock(), Lock()
        return made

    _recovering: RLock  # held while it is brought to another machine
    _ending: Lock  # held to decide whether it goes on or is closed

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

    def _go_on(self, connection: Connection) -> None:
        """Continues over another connection, after its machine was lost. Raises SandboxClosed if it was closed."""
        with self._ending:
            if not self._closing:
                self._line = connection
                self.recovered += 1
                return
        self._release()
        raise SandboxClosed("the sandbox was closed")

    def _steadily(self, work: Callable[[ClusterSandbox], T]) -> T:
        """What `work` returns, if it was on one machine all the time. Raises SandboxLost."""
        before = self._connection
        found = work(self)
        if self._line is not before:
            raise SandboxLost("the sandbox was lost meanwhile")
        return found

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

        Running commands have `grace` seconds to end by themselves; no new one is started meanwhile. Whatever fails, the
        rest is done, and then the first error is raised.
        """
        with self._ending:
            self._closing = True
        if self._saving is not None:
            self._saving.stop()
        try:
            self._end(grace)
        finally:
            problems = closed((self._close_home, self._release, self._forgotten, self._forget_saved))
        if problems:
            raise problems[0]

    def _end(self, grace: float) -> None:
        line = self._line
        try:
            if self._owns and not line.ended:
                line.on_end = lambda: None  # its place is given back below
                line.call("close", {"grace": grace})
                self._orderly = True
        except SandboxClosed:
            pass  # it has already ended
        finally:
            line.close()

    def _forget_saved(self) -> None:
        if self._saving is not None:
            self._saving.forget()

    def __repr__(self) -> str:
        return f"<ClusterSandbox {self.id} on {self.node[:12]}{' closed' if self._line.ended else ''}>"


def closed(all: Iterable[Callable[[], object]]) -> list[Exception]:
    """Calls each, and returns what was raised."""
    problems: list[Exception] = []
    for one in all:
        try:
            one()
        except Exception as problem:  # noqa: BLE001 - the others must be closed, too
            problems.append(problem)
    return problems
