"""What happens when a sandbox's time is up: it ends or, if its client asked for that, it is paused.

Ending is done by the sandbox's own `limits.lifetime`, with or without this server. Pausing is done by a timer here; the
sandbox then has no lifetime of its own, only the owner's limit.
"""

from __future__ import annotations

import asyncio

from sandbox.errors import Denied, SandboxError
from sandbox.rpc import messages as m
from sandbox.server import lifetimes
from sandbox.server.e2b.state import SandboxState, now
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server

TIMEOUT = 300  # seconds that a sandbox lives, unless the client sets another timeout


async def extend(server: Server, access: Access, reached: Reached, seconds: int) -> None:
    """Sets the sandbox's time to `seconds` from now. Without scope `host`, raises Denied if its owner allows less."""
    state = server.e2b.of(reached.id)

    def change() -> None:
        wanted = m.Extend(lifetime=max(1, seconds))
        if not access.may("host"):
            lifetimes.check(server.sandboxes, reached.id, wanted)
        if not state.pauses:
            reached.call("extend", wanted)

    await server.run(change)
    state.ends = now() + seconds
    if state.pauses:
        _set_timer(server, reached, state, max(1, seconds))


async def begin_to_pause(server: Server, access: Access, reached: Reached, state: SandboxState, seconds: int) -> None:
    """Makes a new sandbox pause after `seconds`, instead of ending."""
    state.pauses = True
    await server.run(lambda: _no_end(server, access.may("host"), reached))
    _set_timer(server, reached, state, max(1, seconds))


async def pause(server: Server, access: Access, reached: Reached) -> None:
    """Freezes everything inside. It stays in memory, without a time limit unless the owner set one."""
    server.e2b.of(reached.id).stop_timer()
    await server.run(reached.sandbox.pause)
    await server.run(lambda: _no_end(server, access.may("host"), reached))


async def wake(server: Server, reached: Reached) -> None:
    """Resumes a paused sandbox for the default time, if it is one that resumes when it is used."""
    state = server.e2b.of(reached.id)
    async with state.waking:
        if not (state.wakes and reached.paused):
            return
        await server.run(reached.sandbox.resume)
        state.ends = now() + TIMEOUT
        _set_timer(server, reached, state, TIMEOUT)


def _no_end(server: Server, host: bool, reached: Reached) -> None:
    """Sets the lifetime to the most that its owner allows, or to none. May block."""
    wanted = m.Extend(lifetime=None)
    if not host:
        try:
            lifetimes.check(server.sandboxes, reached.id, wanted)
        except Denied:
            wanted = m.Extend(lifetime=max(1.0, lifetimes.left(server.sandboxes, reached.id) or 1.0))
    reached.call("extend", wanted)


def _set_timer(server: Server, reached: Reached, state: SandboxState, seconds: float) -> None:
    state.stop_timer()
    state.timer = asyncio.get_running_loop().create_task(_pause_later(server, reached, seconds))


async def _pause_later(server: Server, reached: Reached, seconds: float) -> None:
    await asyncio.sleep(seconds)
    try:
        await server.run(reached.sandbox.pause)
    except SandboxError:
        pass  # it has ended, or is paused already
