"""One sandbox for each session of an MCP client: started by its first call, ended with it, or when it was not used."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types.version import is_version_at_least

from sandbox.aio import AsyncSandbox
from sandbox.async_session import AsyncCodeSession
from sandbox.errors import SandboxError
from sandbox.integrations.mcp_questions import Questions

SESSIONS_MOST = 64
SPARED = 60.0  # seconds after its last call in which a session is not ended to make room for another
WITHOUT_SESSIONS = "2026-07-28"  # the first protocol that has none
REMEMBERED = 1000  # sessions that are told that theirs was ended


class Session:
    """A client's sandbox, its Python, and its questions."""

    def __init__(self, make: Callable[[Questions], AsyncSandbox]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._sandbox: AsyncSandbox | None = None
        self._python: AsyncCodeSession | None = None
        self._closed = False
        self.questions = Questions()
        self.calls = 0
        self.used = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a call runs in it."""
        return self.calls > 0 or self.questions.waits

    async def sandbox(self) -> AsyncSandbox:
        """The sandbox, started if need be. Raises ToolError, once, when it has ended by itself."""
        async with self._lock:
            return await self._started()

    async def _started(self) -> AsyncSandbox:
        if self._closed:
            raise ToolError("this session has ended")
        if self._sandbox is not None and self._sandbox.sync._closed:
            await self._sandbox.close()
            self._sandbox = self._python = None
            raise ToolError(ENDED)
        if self._sandbox is None:
            try:
                self._sandbox = await self._make(self.questions).start()
            except SandboxError as problem:
                raise ToolError(f"the sandbox could not be started: {problem}") from problem
        return self._sandbox

    async def python(self) -> AsyncCodeSession:
        """The Python that keeps its state."""
        async with self._lock:
            sandbox = await self._started()
            if self._python is None:
                self._python = await sandbox.python()
            return self._python

    async def close(self) -> None:
        """Ends the sandbox, and what runs in it. Waits for one that is being started."""
        self._closed = True
        await self.questions.close()
        async with self._lock:
            if self._sandbox is not None:
                await self._sandbox.close()


ENDED = "the sandbox has ended, and with it what ran and was kept in it; the next call starts a new one"


class SessionSandboxes:
    """The sessions of all clients. `idle`: seconds without a call after which one is ended; None: never."""

    def __init__(
        self, make: Callable[[Questions], AsyncSandbox], idle: float | None = None, most: int = SESSIONS_MOST
    ) -> None:
        self._make = make
        self._idle = idle
        self._most = most
        self._sessions: dict[str, Session] = {}
        self._lost: dict[str, None] = {}  # names of sessions that were ended here, the oldest first

    @asynccontextmanager
    async def using(self, context: Context[Any, Any]) -> AsyncIterator[Session]:
        """The calling session; it is not idle meanwhile."""
        session = await self._find(name_of(context))
        session.calls += 1
        try:
            yield session
        finally:
            session.calls -= 1
            session.used = time.monotonic()

    async def of(self, context: Context[Any, Any]) -> AsyncSandbox:
        """The sandbox of the calling session."""
        return await (await self._find(name_of(context))).sandbox()

    async def _find(self, name: str) -> Session:
        if name in self._lost:
            del self._lost[name]
            raise ToolError(ENDED)
        while name not in self._sessions:
            if len(self._sessions) < self._most:
                self._sessions[name] = Session(self._make)
            else:
                await self._make_room()
        return self._sessions[name]

    async def _make_room(self) -> None:
        free = self._unused(SPARED)
        if not free:
            raise ToolError("too many sessions have a sandbox; end one of them first")
        await self._lose(min(free, key=lambda name: self._sessions[name].used))

    def _unused(self, seconds: float) -> list[str]:
        """The sessions in which no call runs, nor has for some time."""
        now = time.monotonic()
        return [name for name, one in self._sessions.items() if not one.busy and now - one.used >= seconds]

    async def _lose(self, name: str) -> None:
        """Ends a session whose client has not."""
        self._lost[name] = None
        while len(self._lost) > REMEMBERED:
            del self._lost[next(iter(self._lost))]
        await self.end(name)

    async def end(self, name: str) -> None:
        """Ends the sandbox of a session."""
        session = self._sessions.pop(name, None)
        if session is not None:
            await session.close()

    async def end_unused(self) -> None:
        """Ends sessions that are idle, for ever."""
        while self._idle is not None:
            for name in self._unused(self._idle):
                await self._lose(name)
            ends = [one.used + self._idle - time.monotonic() for one in self._sessions.values() if not one.busy]
            await asyncio.sleep(max(0.05, min([self._idle, *ends])))

    async def close(self) -> None:
        """Ends every sandbox."""
        await asyncio.gather(*(self.end(name) for name in list(self._sessions)))


def of_transport(id: str) -> str:
    """The name of the session that the transport made under this id."""
    return f"transport {id}"


def name_of(context: Context[Any, Any]) -> str:
    """Over stdio there is one client. Over HTTP the transport names the session, or else the client does.

    Since 2026-07-28 the protocol has no sessions, and its transport does not check an id that a client sends.
    """
    headers = context.headers or {}
    id = headers.get("mcp-session-id")
    if id and not is_version_at_least(context.protocol_version or "", WITHOUT_SESSIONS):
        return of_transport(id)
    return f"client {headers.get('x-sandbox-session', '')}"[:200]
