"""The desktop of a sandbox for asyncio programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandbox.async_threads import Threads
    from sandbox.desktop.methods import DesktopMethods, Point, Window


class AsyncDesktop:
    """`sb.desktop` of an `AsyncSandbox`: every method of `Sandbox.desktop`, as a coroutine."""

    def __init__(self, threads: Threads, desktop: Callable[[], DesktopMethods]) -> None:
        self._threads, self._desktop = threads, desktop

    async def start(self) -> dict[str, str]:
        """As `Sandbox.desktop.start`."""
        return await self._threads.run(lambda: self._desktop().start())

    async def size(self) -> Point:
        """As `Sandbox.desktop.size`."""
        return await self._threads.run(lambda: self._desktop().size())

    async def screenshot(self, region: tuple[int, int, int, int] | None = None) -> bytes:
        """As `Sandbox.desktop.screenshot`."""
        return await self._threads.run(lambda: self._desktop().screenshot(region))

    async def windows(self) -> list[Window]:
        """As `Sandbox.desktop.windows`."""
        return await self._threads.run(lambda: self._desktop().windows())

    async def click(self, x: int, y: int, button: str = "left", count: int = 1) -> None:
        """As `Sandbox.desktop.click`."""
        await self._threads.run(lambda: self._desktop().click(x, y, button, count))

    async def double_click(self, x: int, y: int, button: str = "left") -> None:
        """As `Sandbox.desktop.double_click`."""
        await self._threads.run(lambda: self._desktop().double_click(x, y, button))

    async def move(self, x: int, y: int) -> None:
        """As `Sandbox.desktop.move`."""
        await self._threads.run(lambda: self._desktop().move(x, y))

    async def drag(self, path: Sequence[Point], button: str = "left") -> None:
        """As `Sandbox.desktop.drag`."""
        await self._threads.run(lambda: self._desktop().drag(path, button))

    async def scroll(self, x: int, y: int, dx: int = 0, dy: int = 0) -> None:
        """As `Sandbox.desktop.scroll`."""
        await self._threads.run(lambda: self._desktop().scroll(x, y, dx, dy))

    async def mouse(self, down: bool, button: str = "left") -> None:
        """As `Sandbox.desktop.mouse`."""
        await self._threads.run(lambda: self._desktop().mouse(down, button))

    async def pointer(self) -> Point:
        """As `Sandbox.desktop.pointer`."""
        return await self._threads.run(lambda: self._desktop().pointer())

    async def type(self, text: str) -> None:
        """As `Sandbox.desktop.type`."""
        await self._threads.run(lambda: self._desktop().type(text))

    async def keypress(self, keys: str) -> None:
        """As `Sandbox.desktop.keypress`."""
        await self._threads.run(lambda: self._desktop().keypress(keys))

    async def hold(self, keys: str, down: bool) -> None:
        """As `Sandbox.desktop.hold`."""
        await self._threads.run(lambda: self._desktop().hold(keys, down))

    async def record_audio(self, duration: float) -> bytes:
        """As `Sandbox.desktop.record_audio`."""
        return await self._threads.run(lambda: self._desktop().record_audio(duration))

    async def play_audio(self, data: bytes, format: str = "wav") -> None:
        """As `Sandbox.desktop.play_audio`."""
        await self._threads.run(lambda: self._desktop().play_audio(data, format))

    async def start_video(self, rate: int = 10) -> None:
        """As `Sandbox.desktop.start_video`."""
        await self._threads.run(lambda: self._desktop().start_video(rate))

    async def stop_video(self) -> bytes:
        """As `Sandbox.desktop.stop_video`."""
        return await self._threads.run(lambda: self._desktop().stop_video())

    async def capabilities(self) -> dict[str, str | None]:
        """As `Sandbox.desktop.capabilities`."""
        return await self._threads.run(lambda: self._desktop().capabilities())

    async def act(self, action: Mapping[str, Any]) -> bytes | Point | None:
        """As `Sandbox.desktop.act`."""
        return await self._threads.run(lambda: self._desktop().act(action))
