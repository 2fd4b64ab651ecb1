"""Runs one piece of code in a context, and reports its output in the form of E2B's code interpreter."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sandbox.server.e2b.refusals import E2bRefusal

if TYPE_CHECKING:
    from sandbox.server.e2b.contexts import Context
    from sandbox.server.server import Server
    from sandbox.sessions.result import CodeResult, RichOutput

AHEAD = 64  # messages that may be unread; then the code waits
PING = 5.0  # seconds of silence before a keepalive is sent: only by writing do we notice that the client has left
FORMS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
    "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
    "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


class Execution:
    """Runs code once, after any earlier code in the same context has ended."""

    def __init__(self, server: Server, context: Context, code: str, variables: Mapping[str, str]) -> None:
        """`variables` are set while the code runs. Raises E2bRefusal."""
        self._server, self._session, self._turn = server, context.session, context.turn
        self._context = context
        self._code = code
        self._before, self._after = environment(context.language, variables, context.state.envs)
        self._said: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(AHEAD)
        self._loop = asyncio.get_running_loop()
        self._left = False  # whether the client has left

    async def run(self) -> AsyncIterator[dict[str, Any]]:
        """The code's output, until it has ended. Leaving early interrupts the code; the context's state is kept.

        Raises CommandError when the interpreter cannot be started, or ended meanwhile.
        """
        async with self._turn:  # leaving before it is our turn must not interrupt other code
            async for said in self._run():
                yield said

    async def _run(self) -> AsyncIterator[dict[str, Any]]:
        work = asyncio.ensure_future(self._server.run(self._work))
        work.add_done_callback(lambda _: self._said.put_nowait(None) if not self._said.full() else None)
        try:
            while not (work.done() and self._said.empty()):
                try:
                    said = await asyncio.wait_for(self._said.get(), PING)
                except TimeoutError:
                    yield {"type": "keepalive"}
                    continue
                if said is not None:
                    yield said
            error = work.result().error
            if error is not None:
                yield {"type": "error", "name": error.name, "value": error.value, "traceback": error.traceback}
        finally:
            await asyncio.shield(self._leave(work))

    async def _leave(self, work: asyncio.Future[CodeResult]) -> None:
        """The client has left: drops unread output, and interrupts code that is still running."""
        self._left = True
        if not work.done():
            await self._server.run(self._session.interrupt)
        while not work.done():
            while not self._said.empty():
                self._said.get_nowait()
            await asyncio.wait([work], timeout=0.05)
        work.exception()  # retrieved, so that asyncio does not log it

    def _work(self) -> CodeResult:
        """Runs in a thread."""
        if not self._context.prepared:
            self._session.run(_forms())
            self._context.prepared = True
        if self._before:
            self._session.run(self._before)
        try:
            return self._session.run(
                self._code,
                on_stdout=self._listener("stdout"),
                on_stderr=self._listener("stderr"),
                on_output=lambda output: self._say(shown(output)),
            )
        finally:
            if self._after:
                self._session.run(self._after)

    def _listener(self, stream: str) -> Callable[[str], None]:
        return lambda text: self._say({"type": stream, "text": text, "timestamp": datetime.now(UTC).isoformat()})

    def _say(self, what: dict[str, Any]) -> None:
        if not self._left:
            asyncio.run_coroutine_threadsafe(self._said.put(what), self._loop).result()


@cache
def _forms() -> str:
    return (files("sandbox.server.e2b") / "drivers" / "forms.py").read_text(encoding="utf-8")


def shown(output: RichOutput) -> dict[str, Any]:
    """A value to show. Formats that E2B has a field for go there; the rest goes to `extra`."""
    told: dict[str, Any] = {"type": "result", "is_main_result": output.is_result}
    extra: dict[str, Any] = {}
    for form, value in output.data.items():
        if form in FORMS:
            told[FORMS[form]] = value
        else:
            extra[form] = value
    text = told.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        told["text"] = text[1:-1]  # like E2B, which shows a string without its quotes
    return {**told, "extra": extra} if extra else told


def environment(language: str, variables: Mapping[str, str], lasting: Mapping[str, str]) -> tuple[str, str]:
    """Code that sets variables for one run, and code that resets them to the sandbox's own. Raises E2bRefusal."""
    if not variables:
        return "", ""
    for name in variables:
        if not _NAME.fullmatch(name):
            raise E2bRefusal(400, f"{name[:40]!r} is no name of a variable")
    back = {name: lasting[name] for name in variables if name in lasting}
    gone = [name for name in variables if name not in lasting]
    if language == "python":
        os = "__import__('os').environ"
        drop = "".join(f"\n{os}.pop({name!r}, None) and None" for name in gone)
        return f"{os}.update({dict(variables)!r})", f"{os}.update({back!r}){drop}"
    if language == "node":
        drop = "".join(f"; delete process.env[{json.dumps(name)}]" for name in gone)
        return f"Object.assign(process.env, {json.dumps(dict(variables))}); 0", (
            f"Object.assign(process.env, {json.dumps(back)}){drop}; 0"
        )
    put = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(put), "\n".join(
        [*(f"export {name}={shlex.quote(value)}" for name, value in back.items()), *(f"unset {name}" for name in gone)]
    )
