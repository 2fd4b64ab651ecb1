"""What the MCP server's tools return to a model: bounded, with the beginning and the end."""

from collections import deque
from typing import Any

from mcp.server.mcpserver import Image
from pydantic import BaseModel

from sandbox.audit.reading import entries
from sandbox.config.home import record_directory
from sandbox.result import ExecResult
from sandbox.sandbox import Sandbox

OUTPUT_MOST = 100_000  # bytes of each output stream that a model sees
PARTS_MOST = 50


class Ran(BaseModel):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool


def recorded(sandbox: Sandbox, last: int) -> list[dict[str, Any]]:
    """The last entries of the record that are about a sandbox."""
    kept: deque[dict[str, Any]] = deque(maxlen=max(0, last))
    kept.extend(one for one in entries(record_directory(sandbox.config)) if one.get("sandbox") == sandbox.id)
    return list(kept)


def bounded(parts: list[str | Image]) -> list[str | Image]:
    """As many of the parts as a model should see at once."""
    room, kept = 2 * OUTPUT_MOST, []
    for part in parts[:PARTS_MOST]:
        text = part[:room] if isinstance(part, str) else part
        room -= len(text) if isinstance(text, str) else 0
        kept.append(text)
    return kept


class ClippedOutput:
    """Output up to a limit: what a model needs is mostly at the beginning and at the end."""

    def __init__(self) -> None:
        self._first, self._last, self.cut = bytearray(), bytearray(), False

    def add(self, data: bytes) -> None:
        """Keeps the first half of the limit, and the last."""
        room = OUTPUT_MOST // 2 - len(self._first)
        self._first += data[:room]
        self._last += data[room:] if room > 0 else data
        if len(self._last) > OUTPUT_MOST // 2:
            self.cut = True
            del self._last[: -OUTPUT_MOST // 2]

    def text(self) -> str:
        """What was kept."""
        middle = b"\n[... output cut by sandbox ...]\n" if self.cut else b""
        return (bytes(self._first) + middle + bytes(self._last)).decode(errors="replace")


def ran(result: ExecResult, out: ClippedOutput, err: ClippedOutput) -> Ran:
    return Ran(
        exit_code=result.exit_code,
        stdout=out.text(),
        stderr=err.text() + (f"\n{result.note}" if result.note else ""),
        timed_out=result.timed_out,
        truncated=out.cut or err.cut,
    )
