"""What E2B's clients expect of a sandbox and ours do not have: metadata, variables, contexts, watchers, an end time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, TypeVar

from sandbox.config.home import home
from sandbox.errors import NotFound, SandboxError
from sandbox.registry.registry import find
from sandbox.registry.remove import remove
from sandbox.server.e2b.refusals import E2bRefusal

if TYPE_CHECKING:
    from sandbox.server.e2b.contexts import Context
    from sandbox.server.e2b.credentials import Credentials
    from sandbox.server.e2b.messages import ProcessConfig
    from sandbox.server.e2b.watching import Watcher
    from sandbox.sessions.session import CodeSession

T = TypeVar("T")
TEMPLATE = "base"
NO_END = 10 * 365 * 86400.0  # seconds: E2B's answers always have an end time
MOST_CONTEXTS, MOST_WATCHERS, MOST_PROCESSES, MOST_STREAMS = 64, 64, 256, 256  # per sandbox, at once


class SandboxState:
    """One sandbox, as E2B's clients see it. Changed only in the event loop."""

    def __init__(self, *, template: str = TEMPLATE, ends: float | None = None) -> None:
        self.template = template
        self.metadata: dict[str, str] = {}
        self.envs: dict[str, str] = {}
        self.made_here = False
        self.streams = 0  # open now
        self.internet: bool | None = None
        self.home: str | None = None  # the client's home directory, if it is not the sandbox's directory
        self.started: float | None = None  # seconds since 1970, if known more exactly than in the registry
        self.ends = ends
        self.pauses = False  # whether it pauses when its time is up; else it ends
        self.wakes = False  # whether it resumes when somebody uses it while it is paused
        self.waking = asyncio.Lock()
        self.timer: asyncio.Task[None] | None = None
        self.contexts: dict[str, Context] = {}
        self.default_contexts: dict[str, str] = {}  # language -> id
        self.watchers: dict[str, Watcher] = {}
        self.configs: dict[int, ProcessConfig] = {}  # by process id
        self.cpu: tuple[float, float] | None = None  # time of the last measurement, and the milliseconds used by then

    def end(self, started: float) -> float:
        """When it ends."""
        return self.ends if self.ends is not None else started + NO_END

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def close(self) -> None:
        """Releases what its watchers and interpreters hold, after its sandbox has ended. May block."""
        holders: list[Watcher | CodeSession] = [
            *self.watchers.values(),
            *(one.session for one in self.contexts.values()),
        ]
        for one in holders:
            try:
                one.close()
            except (SandboxError, OSError):
                pass  # it ended together with its sandbox

    async def counted(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """The same items, counted as an open stream meanwhile. Each stream takes one of the server's threads."""
        self.streams += 1
        try:
            async for one in items:
                yield one
        finally:
            self.streams -= 1
            await items.aclose()  # type: ignore[attr-defined]

    def room(self, there: int, most: int, what: str) -> None:
        """Raises E2bRefusal when there are `most` already."""
        if there >= most:
            raise E2bRefusal(429, f"a sandbox has at most {most} {what} at once")


class E2b:
    """What the routes of this package share."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self._states: dict[str, SandboxState] = {}
        self._ended: set[str] = set()  # ended sandboxes, made here, whose files still exist
        self._dropped: list[SandboxState] = []  # states of ended sandboxes that are not closed yet

    def of(self, id: str) -> SandboxState:
        """The state of a sandbox, whoever made it."""
        return self._states.setdefault(id, SandboxState())

    def add(self, id: str, state: SandboxState) -> None:
        """Adds a sandbox that was made here: its files are removed when it has ended."""
        state.made_here = True
        self._states[id] = state

    def forget_all_but(self, living: Iterable[str]) -> None:
        """Drops the states of sandboxes that have ended."""
        there = set(living)
        self._ended.update(id for id, state in self._states.items() if state.made_here and id not in there)
        dropped = [state for id, state in self._states.items() if id not in there]
        for state in dropped:
            state.stop_timer()
        self._dropped += dropped
        self._states = {id: state for id, state in self._states.items() if id in there}
        self.credentials.forget(there)

    def clear(self) -> None:
        """Removes what ended sandboxes left behind. May block. One that is still ending is left for the next call."""
        dropped, self._dropped = self._dropped, []
        for state in dropped:
            state.close()
        for id in tuple(self._ended):
            try:
                remove(find(home(), id))
            except NotFound:
                pass
            except (SandboxError, OSError):
                continue
            self._ended.discard(id)


def now() -> float:
    return time.time()
