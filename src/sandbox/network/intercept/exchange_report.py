"""What the record and the events say about one exchange, once its response has passed or failed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sandbox.errors import Denied
from sandbox.network.http.body import EMPTY, Body, Whole
from sandbox.policy.decision import Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.network.destination import Destination, GateContext
    from sandbox.network.http.message import Request, Response
    from sandbox.network.secrets.store import Secrets

ALLOWED = Decision(True, "network.allowed_hosts", "allowed")


class Report:
    """Reports one exchange, once: when its response has passed or failed."""

    def __init__(self, context: GateContext, destination: Destination, secrets: Secrets, request: Request) -> None:
        self._context, self._destination = context, destination
        self._began = time.monotonic()
        # As the tenant sent it, with placeholders. Scrubbed anyway: the tenant may know a value from elsewhere.
        self._method, self._url = request.method, secrets.scrub(request.url)
        self._scrub = secrets.scrub
        self.body: Body = EMPTY
        self._done = False

    @property
    def what(self) -> str:
        """The request's method and URL."""
        return f"{self._method} {self._url}"

    def ended(self, response: Response, decision: Decision) -> Response:
        """The exchange ends with a response of our own."""
        self._tell(decision, response.status, len(response.stream.data) if isinstance(response.stream, Whole) else 0)
        return response

    def left(self) -> None:
        """The tenant closed the connection before there was a response."""
        self._tell(Decision(True, "tenant", "the tenant closed the connection"), 0, 0)

    def following(self, response: Response) -> Response:
        """The exchange ends when the body of `response` does."""
        body = response.stream
        if isinstance(body, Whole) or body is EMPTY:
            self._tell(ALLOWED, response.status, len(body.data) if isinstance(body, Whole) else 0)
        else:
            response.stream = Counted(body, lambda size, problem: self._answered(response.status, size, problem))
        return response

    def switched(self, sent: int, received: int, problem: Exception | None) -> None:
        """A WebSocket ended."""
        refused = Decision(False, problem.rule, problem.reason) if isinstance(problem, Denied) else ALLOWED
        self._tell(refused, 101, received, sent)

    def _answered(self, status: int, size: int, problem: Exception | None) -> None:
        if isinstance(problem, Denied):
            self._tell(Decision(False, problem.rule, problem.reason), status, size)
        elif problem is not None:
            self._tell(Decision(True, "upstream", self._scrub(f"cut short: {problem}")), status, size)
        else:
            self._tell(ALLOWED, status, size)

    def _tell(self, decision: Decision, status: int, received: int, sent: int | None = None) -> None:
        if self._done:
            return
        self._done = True
        if sent is None:
            sent = self.body.size if isinstance(self.body, Counted) else 0
        self._context.report(
            self._destination,
            method=self._method,
            url=self._url,
            decision=decision,
            status=status,
            sent=sent,
            received=received,
            seconds=time.monotonic() - self._began,
        )


class Counted(Body):
    """A body that reports its size when it ends, complete or not."""

    def __init__(self, source: Body, ended: Callable[[int, Exception | None], None] | None = None) -> None:
        self._source = source
        self._ended = ended
        self.size = 0
        self.length = source.length

    async def read(self) -> bytes:
        try:
            piece = await self._source.read()
        except BaseException as problem:
            self._tell(problem if isinstance(problem, Exception) else ConnectionAbortedError("cancelled"))
            raise
        self.size += len(piece)
        if not piece:
            self.trailers = self._source.trailers
            self._tell(None)
        return piece

    def close(self) -> None:
        self._tell(ConnectionAbortedError("the tenant closed the connection"))
        self._source.close()

    def _tell(self, problem: Exception | None) -> None:
        if self._ended is not None:
            self._ended(self.size, problem)
            self._ended = None
