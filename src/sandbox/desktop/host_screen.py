"""This machine's own screen, for a sandbox whose owner set `desktop.display: host` and agrees each time.

Nothing inside the walls can reach the display: the host's process is its client, and only what the caller of
`sb.desktop` asks for happens there. But if the caller follows an agent, that agent sees and does what you could.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from threading import Event
from typing import TYPE_CHECKING

from sandbox.asks.question import DENY, ONCE, Subject
from sandbox.desktop.keyboard import Keyboard
from sandbox.desktop.x11 import Display, DisplayLost
from sandbox.errors import Denied, Message, SandboxError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from sandbox.asks.verdict import Verdict
    from sandbox.sandbox import Sandbox

_DISPLAY = re.compile(r"(?:unix)?:(\d{1,3})(?:\.\d+)?")
_MOST_AUTHORITY = 2**20


class ScreenSubject(Subject):
    """The question whether a sandbox may use this machine's screen."""

    kind = "screen"
    answers = (ONCE, DENY)

    def __init__(self, display: str) -> None:
        super().__init__(None)
        self._display = display
        self._this_time = object()  # unique, so that no answer counts for another time

    @property
    def key(self) -> Hashable:
        return self.kind, self._display

    @property
    def grant(self) -> Hashable:
        return self.kind, self._this_time

    @property
    def target(self) -> str:
        return f"display {self._display}"

    def details(self) -> dict[str, object]:
        return {"operation": "screen", "path": self._display}

    @property
    def text(self) -> Message:
        return Message("The sandbox wants to see and use this machine's own screen, mouse and keyboard")


class HostScreen:
    """The screen of this machine, without sound and VNC."""

    shared = False

    def __init__(self, sandbox: Sandbox, environment: Mapping[str, str]) -> None:
        """Asks first. Raises Denied, SandboxError."""
        self.environment: dict[str, str] = {}  # empty: programs inside cannot reach this screen
        name = environment.get("DISPLAY", "")
        found = _DISPLAY.fullmatch(name)
        if found is None:
            raise SandboxError("this machine has no X display of its own: DISPLAY is {name!r}", name=name)
        _consent(sandbox, name)
        sandbox.record.write(
            "privileged_capability_invocation", "the host's screen", severity="warn", metadata={"display": name}
        )
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(f"/tmp/.X11-unix/X{found[1]}")
        except OSError as problem:
            line.close()
            raise DisplayLost("the display cannot be reached: {problem}", problem=problem) from problem
        self.display = Display(line, _cookie(environment, found[1]))
        self.keyboard = Keyboard(self.display)

    def close(self) -> None:
        """Disconnects from it. Idempotent."""
        self.display.close()


def _consent(sandbox: Sandbox, display: str) -> None:
    """Raises Denied unless the owner, asked now, says yes."""
    answered: list[Verdict] = []
    done = Event()

    def then(verdict: Verdict) -> None:
        answered.append(verdict)
        done.set()

    seconds = sandbox.config.network.ask_timeout
    sandbox._asking().asks().ask(ScreenSubject(display), seconds, then)
    if not done.wait(seconds + 5) or not answered[0]:
        raise Denied("desktop.display", answered[0].why if answered else Message("its owner could not be reached"))


def _cookie(environment: Mapping[str, str], number: str) -> bytes:
    """This display's cookie from the authority file; b"" if there is none."""
    path = environment.get("XAUTHORITY") or os.path.expanduser("~/.Xauthority")
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_AUTHORITY)
    except OSError:
        return b""
    at = 0
    while at < len(data):
        fields = []
        try:
            at += 2
            for _ in range(4):
                (length,) = struct.unpack_from(">H", data, at)
                fields.append(data[at + 2 : at + 2 + length])
                at += 2 + length
        except struct.error:
            return b""
        if fields[1] in (b"", number.encode()) and fields[2] == b"MIT-MAGIC-COOKIE-1":
            return fields[3]
    return b""
