"""One request through the gate: judge it, run hooks, insert secrets, send it, and remove secrets from the response.

The order matters. The rules see what the tenant asked for. Hooks and the script see placeholders, never values. When
they change where the request goes, the rules judge it again. Secrets are inserted last, for the host that the request
really goes to. Any failure on the way refuses the request.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sandbox.errors import Denied
from sandbox.network.destination import Destination
from sandbox.network.http.body import EMPTY, Body
from sandbox.network.http.denied_response import denied, printable, refused_with, unreachable, unreadable
from sandbox.network.http.headers import strip
from sandbox.network.http.http1_rules import readings, refuse_odd_target
from sandbox.network.http.message import BadMessage
from sandbox.network.http.secret_uses import SecretUses
from sandbox.network.intercept.exchange_report import ALLOWED, Counted, Report
from sandbox.network.intercept.hooks import RefusedWith
from sandbox.network.secrets.clean_response import clean, cleaned
from sandbox.network.secrets.injection import put_in
from sandbox.policy.decision import Decision
from sandbox.policy.hosts import InvalidHost, canonical_host

if TYPE_CHECKING:
    from sandbox.network.destination import GateContext
    from sandbox.network.http.body_memory import Allowance
    from sandbox.network.http.headers import Pair
    from sandbox.network.http.message import Inform, Request, Response
    from sandbox.network.intercept.hooks import HookRunner
    from sandbox.network.intercept.upstreams import Upstreams
    from sandbox.network.secrets.store import Secrets
    from sandbox.network.stream import ByteStream
    from sandbox.network.tls.ca import Authority


class Parts(Protocol):
    """What a sandbox's requests are handled with: `interception.Interception`. `update_network` may replace each."""

    secrets: Secrets
    hooks: HookRunner
    allowance: Allowance

    @property
    def authority(self) -> Authority: ...


class Exchange:
    """Handles the requests of one tenant connection. Calling it with a Request always returns a Response."""

    def __init__(self, destination: Destination, context: GateContext, parts: Parts, upstreams: Upstreams) -> None:
        self._destination = destination
        self._context = context
        self._parts = parts
        self._upstreams = upstreams
        self.asked = False  # whether the tenant has sent any request

    @property
    def _secrets(self) -> Secrets:
        return self._parts.secrets

    @property
    def _hooks(self) -> HookRunner:
        return self._parts.hooks

    async def __call__(self, request: Request) -> Response:
        self.asked = True
        report = Report(self._context, self._destination, self._secrets, request)
        try:
            if request.problem is not None:
                raise request.problem
            return await self._handled(request, report)
        except Denied as problem:
            decision = Decision(False, problem.rule, self._secrets.scrub(problem.reason))
            return report.ended(denied(report.what, decision), decision)
        except RefusedWith as problem:
            decision = Decision(False, problem.code, problem.reason)
            return report.ended(refused_with(problem.status, problem.reason, problem.code), decision)
        except BadMessage as problem:
            reason = printable(str(problem))
            return report.ended(unreadable(reason, problem.status), Decision(False, "ambiguous-request", reason))
        except OSError as problem:  # upstream failed or timed out, or the tenant left within its request
            reason = self._secrets.scrub(str(problem) or "it took too long")
            return report.ended(unreachable(request.host, reason), Decision(True, "upstream", reason))
        except asyncio.CancelledError:
            report.left()
            raise
        except Exception as problem:  # noqa: BLE001 - our own mistake refuses too, and is recorded
            decision = Decision(False, "gate", "the gate failed: {error}", error=type(problem).__name__)
            return report.ended(denied(report.what, decision), decision)

    async def _handled(self, request: Request, report: Report) -> Response:
        self._refuse_old_connection()
        self._judge(request)
        request.allowance = self._parts.allowance
        if request.stream is not EMPTY:
            report.body = request.stream = Counted(request.stream)
        request = await self._hooked(request)
        request.uses = SecretUses(partial(self._context.secret_used, Destination(request.host, request.port, "dns")))
        shown = self._secrets.scrub(request.target.partition("?")[0])  # before values are in it; a query may hold one
        asked = request.copy() if self._hooks.on_responses else request  # with placeholders, for on_response
        response = await self._tokens(request, shown) or await self._sent(request, report.body, shown)
        if response.switched is not None:
            return self._upgraded(request, response, report)
        response.allowance = request.allowance
        strip(response.headers, self._context.network.strip_response_headers)
        try:
            clean(self._secrets, response, request)
            if self._hooks.on_responses:
                response = await self._hooks.response(response, asked)
        except BaseException:
            response.stream.close()  # upstream is still sending it
            raise
        return report.following(response)

    async def _sent(self, request: Request, body: Body, shown: str) -> Response:
        """The answer of the host that `request` is for."""
        await self._fitted(request, body)
        try:
            await self._admitted(request, shown)
            return await self._upstreams.send(request)
        except BaseException:
            request.stream.close()  # it may still be reading ahead
            raise

    async def _tokens(self, request: Request, shown: str) -> Response | None:
        """The answer of a token endpoint, without its tokens; None when `request` is not for one."""
        logins = self._secrets.logins
        login = logins.endpoint(request) if logins is not None else None
        if login is None:
            return None
        from sandbox.network.credentials.token_endpoint import TokenExchange

        await self._admitted(request, shown)
        # A separate connection: the tenant's ends with the tenant, but the answer must be read in any case.
        return await TokenExchange(login, self._secrets, self._upstreams.apart()).handled(request)

    async def _admitted(self, request: Request, shown: str) -> None:
        """Asks the owner. This comes last, so that nobody is asked about a request that is refused for another reason.
        Where a hook sends the request elsewhere, that has been judged already."""
        if (request.host, request.port) == (self._destination.host, self._destination.port):
            await self._context.admit(self._destination, request.method, shown)

    async def _hooked(self, request: Request) -> Request:
        """`request` after the hooks, judged again when they changed where it goes."""
        if self._hooks.on_requests:
            before = (request.method, request.scheme, request.host, request.port, request.target)
            request = await self._hooks.request(request)
            if (request.method, request.scheme, request.host, request.port, request.target) != before:
                self._rejudge(request)
        return request

    async def _fitted(self, request: Request, body: Body) -> None:
        """Prepares `request` for sending."""
        if self._hooks.reads_answers:
            request.headers.set("Accept-Encoding", "identity")
        await put_in(self._secrets, request)
        if self._secrets and request.inform is not None:
            request.inform = _cleaning(request, request.inform, self._secrets)
        if request.stream is not body:
            request.headers.remove("Expect")  # its body has been read, or replaced
        if "Upgrade" in request.headers:
            # Compressed frames could not be inspected.
            request.headers.remove("Sec-WebSocket-Extensions")

    def _refuse_old_connection(self) -> None:
        """Applies the rules about hosts: the connection may be older than those in force. Where the owner is asked,
        that is done for each request (`admit`)."""
        decision = ALLOWED if self._context.asks_first else self._context.judge(self._destination)
        if not decision:
            raise Denied(decision.rule, decision.reason)

    def _judge(self, request: Request) -> None:
        """Applies the HTTP rules."""
        for method, target in readings(request.method, request.target, request.headers.pairs):
            decision = self._context.policy.request_denial(method, request.host, request.port, target)
            if decision is not None:
                raise Denied(decision.rule, decision.reason)

    def _rejudge(self, request: Request) -> None:
        """Judges a request that a hook redirected: everything that was checked for the old destination is checked for
        the new one. Its addresses are checked when it is dialled."""
        try:
            request.host = canonical_host(request.host)
        except InvalidHost as problem:
            raise Denied("hook", "a hook changed the host to an invalid one: {problem}", problem=problem) from None
        try:
            refuse_odd_target(request.target)
            refuse_odd_target(request.method)
        except BadMessage as problem:
            raise Denied("hook", "a hook made the request invalid HTTP: {problem}", problem=problem) from None
        if not request.target.startswith("/"):
            raise Denied("hook", "a hook made the request invalid HTTP")
        decision = self._context.judge(Destination(request.host, request.port, "hook"))
        if not decision:
            raise Denied(decision.rule, decision.reason)
        self._judge(request)

    def _upgraded(self, request: Request, response: Response, report: Report) -> Response:
        from sandbox.network.http.websocket import FrameRelay, refuse_other_upgrade
        from sandbox.network.secrets.message_guard import message_guard

        assert response.switched is not None
        upstream, ahead = response.switched
        refuse_other_upgrade(request, response)
        strip(response.headers, self._context.network.strip_response_headers)
        clean(self._secrets, response, request)
        guard = message_guard(self._secrets, request)

        async def upgraded(tenant: ByteStream, read_ahead: bytes) -> None:
            relay = FrameRelay(tenant, upstream, guard)
            try:
                await relay.run(read_ahead, ahead)
            finally:
                report.switched(relay.sent, relay.received, relay.problem)

        response.upgraded = upgraded
        return response


def _cleaning(request: Request, inform: Inform, secrets: Secrets) -> Inform:
    """`inform` without secret values: informational responses may contain them too."""

    async def cleaned_inform(status: int, pairs: list[Pair]) -> None:
        await inform(status, cleaned(secrets, pairs, request))

    return cleaned_inform
