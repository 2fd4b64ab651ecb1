"""OpenAI Agents SDK: its tools, in your sandbox. See docs/integrations/openai-agents.md."""

from __future__ import annotations

import asyncio
import base64
import posixpath
from collections.abc import Callable
from typing import Any, TypeVar

from agents import (
    ApplyPatchOperation,
    AsyncComputer,
    FunctionTool,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ToolOutputImage,
    ToolOutputText,
    apply_diff,
    function_tool,
)

from sandbox.aio import AsyncSandbox
from sandbox.errors import CommandError
from sandbox.sandbox import Sandbox

SECONDS = 120.0
OUTPUT_MOST = 100_000
PICTURES_MOST = 4

T = TypeVar("T")


class SandboxShell:
    """`ShellTool(executor=SandboxShell(sb))`: each command runs in the sandbox's project."""

    def __init__(self, sandbox: Sandbox, *, timeout: float | None = SECONDS, max_output: int = OUTPUT_MOST) -> None:
        """The sandbox stays yours to close. A call's own limits win where they are lower."""
        self._sandbox = AsyncSandbox._around(sandbox)
        self._timeout, self._most = timeout, max_output

    async def __call__(self, request: ShellCommandRequest) -> ShellResult:
        """Runs a call's commands one after another; those after one that timed out are not run."""
        action = request.data.action
        seconds = _least(self._timeout, action.timeout_ms / 1000 if action.timeout_ms else None)
        outputs: list[ShellCommandOutput] = []
        for command in action.commands:
            outputs.append(await self._run(command, seconds))
            if outputs[-1].status == "timeout":
                break
        most = action.max_output_length
        return ShellResult(output=outputs, max_output_length=most, provider_data={"sandbox": self._sandbox.id})

    async def _run(self, command: str, seconds: float | None) -> ShellCommandOutput:
        try:
            done = await self._sandbox.exec(command, timeout=seconds, max_output=self._most)
        except CommandError as problem:
            outcome = ShellCallOutcome(type="exit", exit_code=problem.exit_code)
            return ShellCommandOutput(stderr=f"{problem}\n", outcome=outcome, command=command)
        late = done.timed_out
        outcome = ShellCallOutcome(type="timeout" if late else "exit", exit_code=None if late else done.exit_code)
        told = f"{done.stderr}\n{done.note}".strip() if done.note else done.stderr
        return ShellCommandOutput(stdout=done.stdout, stderr=told, outcome=outcome, command=command)


class SandboxEditor:
    """`ApplyPatchTool(editor=SandboxEditor(sb))`: patches files of the sandbox's project."""

    def __init__(self, sandbox: Sandbox) -> None:
        """The sandbox stays yours to close."""
        self._sandbox = sandbox

    async def create_file(self, operation: ApplyPatchOperation) -> str:
        """Makes a file. Raises OSError, ValueError."""
        return await asyncio.to_thread(self._write, operation, "", "create")

    async def update_file(self, operation: ApplyPatchOperation) -> str:
        """Changes a file, and moves it when that is asked for. Raises OSError, ValueError."""
        old = await asyncio.to_thread(self._sandbox.read_text, operation.path)
        told = await asyncio.to_thread(self._write, operation, old, "default")
        if operation.move_to is not None and operation.move_to != operation.path:
            await asyncio.to_thread(self._sandbox.remove, operation.path)
        return told

    async def delete_file(self, operation: ApplyPatchOperation) -> str:
        """Removes a file. Raises OSError."""
        await asyncio.to_thread(self._sandbox.remove, operation.path)
        return f"deleted {operation.path}"

    def _write(self, operation: ApplyPatchOperation, old: str, mode: Any) -> str:
        path = operation.move_to or operation.path
        new = apply_diff(old, operation.diff or "", mode)
        self._sandbox.mkdir(posixpath.dirname(path) or ".")
        self._sandbox.write_text(path, new)
        return f"wrote {path}"


class SandboxComputer(AsyncComputer):  # type: ignore[misc]
    """`ComputerTool(SandboxComputer(sb))`: the screen, mouse and keyboard of `sb.desktop`."""

    def __init__(self, sandbox: Sandbox) -> None:
        """The sandbox stays yours to close."""
        self._sandbox = sandbox

    @property
    def environment(self) -> str:
        """The kind of screen that the model is told to expect."""
        return "ubuntu"

    @property
    def dimensions(self) -> tuple[int, int]:
        """Its width and height."""
        return self._sandbox.desktop.size()

    async def screenshot(self) -> str:
        """A PNG, in base64."""
        return base64.b64encode(await self._on(lambda: self._sandbox.desktop.screenshot())).decode()

    async def click(self, x: int, y: int, button: str = "left", *, keys: list[str] | None = None) -> None:
        """Clicks."""
        await self._act(type="click", x=x, y=y, button=button, keys=keys)

    async def double_click(self, x: int, y: int, *, keys: list[str] | None = None) -> None:
        """Clicks twice."""
        await self._act(type="double_click", x=x, y=y, keys=keys)

    async def scroll(self, x: int, y: int, scroll_x: int, scroll_y: int, *, keys: list[str] | None = None) -> None:
        """Turns the wheel."""
        await self._act(type="scroll", x=x, y=y, scroll_x=scroll_x, scroll_y=scroll_y, keys=keys)

    async def type(self, text: str) -> None:
        """Types."""
        await self._act(type="type", text=text)

    async def wait(self) -> None:
        """Waits a second."""
        await self._act(type="wait")

    async def move(self, x: int, y: int, *, keys: list[str] | None = None) -> None:
        """Moves the pointer."""
        await self._act(type="move", x=x, y=y, keys=keys)

    async def keypress(self, keys: list[str]) -> None:
        """Presses keys together."""
        await self._act(type="keypress", keys=keys)

    async def drag(self, path: list[tuple[int, int]], *, keys: list[str] | None = None) -> None:
        """Drags along a path."""
        await self._act(type="drag", path=[{"x": x, "y": y} for x, y in path], keys=keys)

    async def _act(self, **action: Any) -> None:
        told = {name: value for name, value in action.items() if value is not None}
        await self._on(lambda: self._sandbox.desktop.act(told))

    async def _on(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)


def python_tool(sandbox: Sandbox, seconds: float = SECONDS) -> FunctionTool:
    """A code interpreter: Python in the sandbox that keeps its state between calls, and shows pictures.

    The sandbox stays yours to close.
    """
    session = sandbox.python()

    @function_tool
    async def run_python(code: str) -> list[ToolOutputText | ToolOutputImage]:
        """Run Python code in a sandbox. Variables, imports and definitions stay; the last line's value is shown."""
        running = asyncio.ensure_future(asyncio.to_thread(session.run, code, seconds, max_output=OUTPUT_MOST))
        try:
            done = await asyncio.shield(running)
        except asyncio.CancelledError:
            session.interrupt()
            raise
        late = "it ran too long and was interrupted; the state is kept" if done.timed_out else ""
        parts = [done.stdout, done.stderr, done.text or "", done.error.traceback if done.error else "", late]
        text = "\n".join(part for part in parts if part)[: 2 * OUTPUT_MOST] or "(no output)"
        pictures = [picture for one in done.outputs if (picture := one.png)][:PICTURES_MOST]
        shown = [f"data:image/png;base64,{base64.b64encode(one).decode()}" for one in pictures]
        return [ToolOutputText(text=text), *(ToolOutputImage(image_url=one) for one in shown)]

    return run_python


def _least(*limits: float | None) -> float | None:
    return min((one for one in limits if one is not None), default=None)
