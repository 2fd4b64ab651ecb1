"""Accepts connections, up to a limit. Each is served by a task of its own, and a failure in one stays there."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from sandbox.errors import SandboxClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from sandbox.guest.carried import CarriedListener
    from sandbox.network.gate.relay import Relay

    Serve = Callable[[socket.socket], Awaitable[None]]
    Listener: TypeAlias = socket.socket | CarriedListener

MOST_CONNECTIONS = 1024
_DESCRIPTORS = 65536  # for all sandboxes of a process
IDLE = 3600.0  # seconds without traffic after which a connection is closed
_EVICTABLE = 60.0  # seconds without traffic after which a connection may be closed to make room
_AT_ONCE = 64
_LAST_BYTES = 5.0  # seconds to deliver what tenants sent before they ended


class Acceptor:
    """All of one sandbox's connections. Calls `overflow` for a connection beyond the limit, `broke` for an unexpected
    error."""

    def __init__(self, overflow: Callable[[socket.socket], None], broke: Callable[[BaseException], None]) -> None:
        self.most = _connection_limit()
        self._overflow = overflow
        self._broke = broke
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], Relay | None] = {}
        self._listeners: dict[Listener, None] = {}
        self._expected: set[asyncio.Task[None]] = set()  # about to carry a relay
        self._closing = False
        self._sweeper = self._loop.create_task(self._sweep())

    def open(self, listener: Listener, serve: Serve) -> None:
        """Accepts on `listener` from now on."""
        if self._closing:
            return
        self._listeners[listener] = None
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept, listener, serve)

    def carries(self, relay: Relay) -> None:
        """The current task's connection moves bytes through `relay`, which can be closed when it is idle."""
        task = asyncio.current_task()
        if task in self._tasks:
            self._tasks[task] = relay
            if self._closing:
                relay.wind_up()

    def expects_relay(self) -> None:
        """The current task's connection will soon have a relay; `close` waits for that too."""
        task = asyncio.current_task()
        if task in self._tasks:
            self._expected.add(task)

    async def close(self) -> None:
        """Ends every connection, after delivering what tenants sent before they ended."""
        self._closing = True
        for listener in self._listeners:
            self._loop.remove_reader(listener)
        lasting = [task for task, relay in self._tasks.items() if relay is not None or task in self._expected]
        for relay in [one for one in self._tasks.values() if one is not None]:
            relay.wind_up()
        if lasting:
            await asyncio.wait(lasting, timeout=_LAST_BYTES)
        tasks = (self._sweeper, *self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: Listener, serve: Serve) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except SandboxClosed:
                self._loop.remove_reader(listener)
                return
            except OSError:  # out of descriptors: try again a little later
                self._loop.remove_reader(listener)
                self._loop.call_later(0.1, self.open, listener, serve)
                return
            if len(self._tasks) >= self.most and not self._evict():
                self._overflow(client)
                continue
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # forward each piece without delay
            task = self._loop.create_task(self._guarded(client, serve))
            self._tasks[task] = None
            task.add_done_callback(lambda task, client=client: self._forget(task, client))  # type: ignore[misc]

    def _forget(self, task: asyncio.Task[None], client: socket.socket) -> None:
        client.close()  # also when the task was cancelled before it began
        self._tasks.pop(task, None)
        self._expected.discard(task)

    async def _guarded(self, client: socket.socket, serve: Serve) -> None:
        try:
            await serve(client)
        except OSError:
            pass  # the tenant or its destination closed the connection
        except Exception as problem:  # noqa: BLE001 - hostile input found a bug: record it, keep the others alive
            self._broke(problem)
        finally:
            client.close()

    def _evict(self) -> bool:
        """Makes room by closing the relay that was idle longest, if it was idle long enough."""
        relays = [(task, relay) for task, relay in self._tasks.items() if relay is not None]
        task, oldest = min(relays, key=lambda pair: pair[1].last_moved, default=(None, None))
        if task is None or oldest is None or self._loop.time() - oldest.last_moved < _EVICTABLE:
            return False
        oldest.abort()
        self._tasks[task] = None  # it makes room for one connection, although its task ends a little later
        return True

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(60)
            for relay in [one for one in self._tasks.values() if one is not None]:
                if self._loop.time() - relay.last_moved > IDLE:
                    relay.abort()


def _connection_limit() -> int:
    """MOST_CONNECTIONS, or fewer where descriptors are scarce, so that no sandbox uses up those of the others. Raises
    the soft limit first, as other servers do: that limit exists for programs that use select()."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    best = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft < best:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (best, hard))
            soft = best
        except (OSError, ValueError):
            pass
    return max(64, min(MOST_CONNECTIONS, (soft - 128) // 6))
