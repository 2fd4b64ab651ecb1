"""Whether this machine can build sandboxes. Tried by building one; after a failure, tried again after a while."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from sandbox.engines.base import Finding
from sandbox.i18n import _

AGAIN = 30.0  # seconds until the next try after a failure


class Probe:
    """Used only from the event loop."""

    def __init__(self, run: Callable[[Callable[[], list[Finding]]], Awaitable[list[Finding]]]) -> None:
        """`run` calls a blocking function in a thread."""
        self._run = run
        self._good = False
        self._looked = float("-inf")
        self._lock = asyncio.Lock()

    async def good(self) -> bool:
        """Whether a sandbox could be built. If not, the reason is printed for the server's owner."""
        async with self._lock:  # one try at a time, however many callers
            if not self._good and time.monotonic() - self._looked > AGAIN:
                missing = [one for one in await self._run(_findings) if one.needed and not one.ok]
                self._good, self._looked = not missing, time.monotonic()
                for one in missing:
                    said = " ".join(_.text(part) for part in (one.name, one.detail, one.remedy) if part)
                    print(
                        _("no sandbox can be built on this machine: {reason}").format(reason=said),
                        file=sys.stderr,
                        flush=True,
                    )
        return self._good


def _findings() -> list[Finding]:
    from sandbox.config.model import Config
    from sandbox.engines.choose import choose

    return choose(Config()).findings()
