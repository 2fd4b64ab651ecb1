"""What the routes share: the sandboxes, the record's tail, the tokens, and threads for blocking work."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.config.home import home
from sandbox.errors import Denied
from sandbox.manager.manager import SandboxManager
from sandbox.manager.managers import Managers
from sandbox.server.capacity import Places
from sandbox.server.e2b.credentials import Credentials
from sandbox.server.e2b.state import E2b
from sandbox.server.probing import Probe
from sandbox.server.reach import Reach, nobody_holds, remember_name
from sandbox.server.ready_pool import Ready
from sandbox.server.scopes import LEASE
from sandbox.server.tail import Tail
from sandbox.server.tickets import Tickets
from sandbox.server.token_file import Given
from sandbox.server.tokens import Tokens

if TYPE_CHECKING:
    from sandbox.config.model import Config
    from sandbox.sandbox import Sandbox
    from sandbox.sandboxes import Sandboxes
    from sandbox.server.scopes import Access
    from sandbox.server.settings import Settings

T = TypeVar("T")
THREADS = 1024  # each running command, terminal or connection takes one
CREATING = "…"  # in place of a leased sandbox's id, until it exists
ENDING_THREADS = 8  # kept for ending things, which must work when all others are taken


class Server:
    """One running server."""

    def __init__(self, sandboxes: Sandboxes, settings: Settings) -> None:
        self.settings = settings
        self.sandboxes = sandboxes
        self.reach = Reach(sandboxes)
        self.places = Places(settings.most, self.in_use, settings.wait)
        self.tokens = Tokens(given=Given(settings.token_file) if settings.token_file is not None else None)
        self.tickets = Tickets()
        self.e2b = E2b(Credentials(self.tokens))
        self.tail = Tail(settings.record)
        self.probe = Probe(self.run)
        self.managers = Managers(self._manager)
        self.ready = Ready(sandboxes, self.workspace, settings.pool) if settings.pool else None
        self.reach.held = self.ready.holds if self.ready is not None else nobody_holds
        self.started = time.time()
        self.leases: dict[str, str] = {}  # token good for one sandbox -> the id of that sandbox, once it exists
        self._leasing = Lock()
        self.answered: dict[int, int] = {}  # status -> how many requests, for /metrics
        self.draining = asyncio.Event()  # set when the server shuts down: streams that never end by themselves end now
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sandbox-http")
        self._ending = ThreadPoolExecutor(ENDING_THREADS, thread_name_prefix="sandbox-http-end")

    def in_use(self) -> int:
        """How many sandboxes are in use. Those that wait in the pool do not count."""
        waiting = self.ready.stats().ready if self.ready is not None else 0
        return max(0, self.sandboxes.running() - waiting)

    async def run(self, work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Runs `work`, which may block, in a thread. If the caller is cancelled meanwhile, `undo` gets the result."""
        return await _in_thread(self._pool, work, undo)

    async def end(self, work: Callable[[], T]) -> T:
        """Like `run`, for work that ends a sandbox or all of them: commands cannot take its threads."""
        return await _in_thread(self._ending, work, None)

    async def pause(self, changed: asyncio.Event, seconds: float) -> bool:
        """Waits until `changed` is set, or for `seconds`. Returns False when the server is shutting down."""
        waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(self.draining.wait())]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return not self.draining.is_set()

    @contextmanager
    def leasing(self, access: Access) -> Iterator[list[Sandbox]]:
        """Around the creation of a sandbox with this access: put it into the list. A lease is good for one, and may try
        again when that failed. Raises Denied after the first, and when the lease has ended."""
        self._lease(access)
        made: list[Sandbox] = []
        try:
            yield made
        finally:
            self._leased(access.token, made[0].id if made else None)

    def end_lease(self, token: str) -> bool:
        """Forgets a lease and its token, unless it creates its sandbox at this moment. Returns whether it did."""
        with self._leasing:
            if self.leases.get(token) == CREATING:
                return False
            self.leases.pop(token, None)
            self.tokens.forget(token)
            return True

    def _lease(self, access: Access) -> None:
        with self._leasing:
            held = self.leases.get(access.token)
            if held == "":
                self.leases[access.token] = CREATING
            elif held is not None:
                raise Denied("lease", "this token was valid for one sandbox only")
            elif access.surface == LEASE:  # over a connection that was made before the lease ended
                raise Denied("lease", "the lease has ended")

    def _leased(self, token: str, sandbox: str | None) -> None:
        with self._leasing:
            if token in self.leases:
                self.leases[token] = sandbox or ""
                if sandbox is not None:
                    self.tokens.bind(token, sandbox)

    def workspace(self, name: str) -> str:
        """A new, empty directory for a sandbox that was given none.

        It is beside the sandbox home (`~/.sandbox`) and not in it, because no sandbox may see that.
        """
        directory = f"{home()}-workspaces/{name or 'sandbox'}-{os.urandom(4).hex()}"
        os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
        os.mkdir(directory, mode=0o700)
        return directory

    def _manager(self, name: str, config: Mapping[str, Any] | None) -> SandboxManager:
        """A manager whose config is layered on the owner's own, in a workspace that is kept."""
        from sandbox.manager.config import spelled, without_effect

        given = dict(config if config is not None else self.settings.manager)
        if "workspaceRoot" not in given:
            given["workspaceRoot"] = os.path.join(f"{home()}-workspaces", name)
        made = self.sandboxes.configured(spelled(given))
        manager = SandboxManager(made, name=name, create=lambda config: self._managed(config, name))
        for note in without_effect(given):
            manager._tell("config", note)
        return manager

    def _managed(self, config: Config, name: str) -> Sandbox:
        """Starts a manager's sandbox, which is shown under the manager's name."""
        sandbox = self.sandboxes.create_managed(config)
        remember_name(sandbox.id, name)
        return sandbox

    def panic(self, by: str, reason: str) -> list[str]:
        """Pulls the kill switch. Raises SandboxError when something could not be ended."""
        from sandbox.service import pull_kill_switch

        self.tickets.void()
        return pull_kill_switch(by=by, reason=reason, close_own=self._close_own)

    def _close_own(self) -> None:
        self.managers.stop_all()
        self.sandboxes.close_all()

    def close(self) -> None:
        """Ends everything the server owns."""
        if self.ready is not None:
            self.ready.close()
        self.managers.stop_all()
        self.tail.close()
        self.reach.close()
        self.sandboxes.close()
        self.e2b.forget_all_but(())
        self.e2b.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._ending.shutdown(wait=False, cancel_futures=True)


async def _in_thread(pool: ThreadPoolExecutor, work: Callable[[], T], undo: Callable[[T], object] | None) -> T:
    future = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda done: _undo(done, undo))
        raise


def _undo(done: asyncio.Future[T], undo: Callable[[T], object] | None) -> None:
    if not done.cancelled() and done.exception() is None and undo is not None:
        undo(done.result())
