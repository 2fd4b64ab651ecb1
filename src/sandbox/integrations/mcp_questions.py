"""A sandbox's questions (docs/asks.md), asked in its MCP client while a tool call runs.

A client of the protocol before 2026-07-28 is asked within the call. A newer one gets the question as the call's result,
and calls again with the answer; the command goes on running meanwhile. "always" is not offered: it changes the person's
own configuration, which is left to their terminal.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import is_version_at_least
from pydantic import BaseModel, ValidationError

from sandbox.info import Ask

TWO_ROUNDS = "2026-07-28"  # the first protocol in which a server cannot send requests
PARKED_MOST = 16  # calls that wait for their client's answer, in one session
KEY = "ask"


class Answer(BaseModel):
    """What the person is asked for."""

    answer: Literal["once", "sandbox", "deny"] = "deny"


def can_ask(context: Context[Any, Any]) -> bool:
    """Whether the calling client can show a question to its person."""
    capabilities = context.client_capabilities
    offered = capabilities.elicitation if capabilities is not None else None
    return offered is not None and (offered.form is not None or offered.url is None)


class OpenQuestion:
    """A question, and the answer that it waits for."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def settle(self, answer: str | None) -> None:
        """Gives the answer, unless nobody waits for it any more; None leaves the question to others."""
        if not self.answer.done():
            self.answer.set_result(answer)


class ToolCall:
    """A tool call that runs until its end, also between the two rounds of a question."""

    def __init__(self, context: Context[Any, Any], work: "Callable[[ToolCall], Awaitable[Any]]") -> None:
        self.context: Context[Any, Any] | None = context
        self.can_ask = can_ask(context)
        self.shown: OpenQuestion | None = None  # what the client was given to answer
        self._waiting: deque[OpenQuestion] = deque()
        self._news = asyncio.Event()
        self.task = asyncio.ensure_future(work(self))
        self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        if not task.cancelled():
            task.exception()  # looked at: perhaps nobody comes back for the result
        self._news.set()

    async def progress(self, count: int, message: str) -> None:
        """Tells the client, when it is there."""
        if self.context is not None:
            await self.context.report_progress(count, message=message)

    async def ask(self, ask: Ask) -> str | None:
        """Asks the client; returns the person's answer, or None when the call ends without one."""
        asked = OpenQuestion(ask)
        self._waiting.append(asked)
        self._news.set()
        return await asked.answer

    async def proceed(self, context: Context[Any, Any]) -> Any:
        """Returns the result, or the question that comes first. Being cancelled ends the call."""
        self.context = context
        try:
            while True:
                self._news.clear()  # first: what comes from here on is seen below, or ends the wait
                while self._waiting and not self.task.done():
                    asked = self._waiting.popleft()
                    if asked.answer.done():
                        continue  # its time is over, or somebody else answered
                    if is_version_at_least(context.protocol_version or "", TWO_ROUNDS):
                        self.shown = asked
                        return None
                    asked.settle(await self._elicited(asked.ask, context))
                if self.task.done():
                    return self.task.result()
                await self._news.wait()
        except asyncio.CancelledError:
            await self.end()
            raise

    async def _elicited(self, ask: Ask, context: Context[Any, Any]) -> str | None:
        """The answer to a question within the call; None when the call ends first."""
        asking = asyncio.ensure_future(context.elicit(ask.text, Answer))
        try:
            await asyncio.wait({asking, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return None
            said = asking.result()
            return said.data.answer if said.action == "accept" else "deny"
        except ValueError:
            return "deny"  # an answer that there is not
        except MCPError:
            return None  # this client cannot ask after all
        finally:
            asking.cancel()

    async def end(self) -> None:
        """Kills what runs, and leaves its questions to others."""
        self.task.cancel()
        await asyncio.wait({self.task})
        self.settle_rest()

    def settle_rest(self) -> None:
        """Leaves to others what this call did not ask."""
        for asked in (*self._waiting, *([self.shown] if self.shown else [])):
            asked.settle(None)


class Questions:
    """The calls that run in one session, and the hook that brings the sandbox's questions to them."""

    def __init__(self) -> None:
        self._running: list[ToolCall] = []
        self._parked: dict[str, ToolCall] = {}

    @property
    def waits(self) -> bool:
        """Whether something runs whose client has not come back with an answer yet."""
        return any(not one.task.done() for one in self._parked.values())

    async def on_ask(self, ask: Ask) -> str | None:
        """The sandbox's hook: asks by the newest call whose client can ask; None leaves it to others."""
        call = next((one for one in reversed(self._running) if one.can_ask), None)
        return None if call is None else await call.ask(ask)

    async def run(self, context: Context[Any, Any], work: Callable[[ToolCall], Awaitable[Any]]) -> Any:
        """Runs `work` to its result, or to a question; called again with the answer, goes on with the same work."""
        handle = context.request_state
        call = self._begun(context, work) if handle is None else self._resumed(handle, context)
        try:
            result = await call.proceed(context)
        except BaseException:
            self._running.remove(call)
            call.settle_rest()
            raise
        if call.shown is not None:
            return await self._park(call, call.shown.ask)
        self._running.remove(call)
        call.settle_rest()
        return result

    def _begun(self, context: Context[Any, Any], work: Callable[[ToolCall], Awaitable[Any]]) -> ToolCall:
        call = ToolCall(context, work)
        self._running.append(call)
        return call

    def _resumed(self, handle: str, context: Context[Any, Any]) -> ToolCall:
        call = self._parked.pop(handle, None)
        if call is None or call.shown is None:
            raise ToolError("the call that asked has ended")
        call.shown.settle(_answer((context.input_responses or {}).get(KEY)))
        call.shown = None
        return call

    async def _park(self, call: ToolCall, ask: Ask) -> InputRequiredResult:
        """Keeps a call until its client comes back with the answer. One that never does loses it to newer ones."""
        if len(self._parked) >= PARKED_MOST:
            oldest = self._parked.pop(next(iter(self._parked)))
            self._running.remove(oldest)
            await oldest.end()
        handle, call.context = secrets.token_hex(16), None
        self._parked[handle] = call
        schema = Answer.model_json_schema()
        request = ElicitRequest(params=ElicitRequestFormParams(message=ask.text, requested_schema=schema))
        return InputRequiredResult(input_requests={KEY: request}, request_state=handle)

    async def close(self) -> None:
        """Ends what waits for a client that will not come back."""
        for call in list(self._parked.values()):
            await call.end()
        self._parked.clear()


def _answer(given: Any) -> str:
    """What the client's person said. Anything but an answer that was offered is a no."""
    if not isinstance(given, ElicitResult) or given.action != "accept":
        return "deny"
    try:
        return Answer.model_validate(given.content or {}).answer
    except ValidationError:
        return "deny"
