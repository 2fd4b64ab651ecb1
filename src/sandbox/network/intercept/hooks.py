"""The owner's own code on the path of every request: Python hooks and the policy script, run so that neither
can hang the gate and so that a failure refuses the request.

    class MyHooks:
        def on_request(self, req): ...           # return req, changed or not; None or `raise Blocked(...)` refuses it
        def on_response(self, resp, req): ...    # the same for the response
        def on_tls_verify(self, host, certs): ...  # raise, or return False, to refuse upstream's certificates

Each may be a plain function, which runs in a worker thread and may block, or a coroutine function, which runs in the
gate's event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.errors import Denied
from sandbox.network.http.message import Request, Response

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sandbox.network.intercept.script import Script
    from sandbox.policy.decision import Decision

    Hook = tuple[str, Callable[..., object]]

M = TypeVar("M", Request, Response)

TIMEOUT = 30.0
WORKERS = 16


class Blocked(Exception):
    """What a hook raises to refuse. Its text is the reason the tenant, the event and the record give."""


class Hooks:
    """Hooks as separate functions, for those who want no class of their own."""

    def __init__(
        self,
        *,
        on_request: Callable[[Request], object] | None = None,
        on_response: Callable[[Response, Request], object] | None = None,
        on_tls_verify: Callable[[str, list[Any]], object] | None = None,
    ) -> None:
        self.on_request = on_request
        self.on_response = on_response
        self.on_tls_verify = on_tls_verify


class HookRunner:
    """The hooks of one sandbox, in order: first the owner's object, then the script."""

    def __init__(self, hooks: object | None, script: Script | None) -> None:
        self._script = script
        self._places: asyncio.Semaphore | None = None
        self.on_requests: list[Hook] = _hooks(hooks, "on_request")
        self.on_responses: list[Hook] = _hooks(hooks, "on_response")
        self._verifiers: list[Hook] = _hooks(hooks, "on_tls_verify")
        # Whether somebody may look into an answer's body, so that it should come uncompressed.
        self.reads_answers = bool(self.on_responses) or (script is not None and script.reads_bodies)
        if script is not None:
            self.on_requests += [("policy_script: on_request", script.on_request)] * script.has("on_request")
            self.on_responses += [("policy_script: on_response", script.on_response)] * script.has("on_response")

    def __bool__(self) -> bool:
        return bool(self.on_requests or self.on_responses or self._verifiers)

    def host_allowed(self, host: str) -> Decision | None:
        """The script's answer; None when it has no such function."""
        return self._script.host_allowed(host) if self._script is not None else None

    async def request(self, request: Request) -> Request:
        """`request` as every hook wants it. Raises Denied."""
        for name, hook in self.on_requests:
            request = await self._message(name, hook, Request, request)
        return request

    async def response(self, response: Response, request: Request) -> Response:
        """`response` as every hook wants it. Raises Denied."""
        for name, hook in self.on_responses:
            response = await self._message(name, hook, Response, response, request)
        return response

    async def tls_verify(self, host: str, chain: list[bytes]) -> None:
        """Asks about upstream's certificates. Raises Denied."""
        if not self._verifiers:
            return
        from cryptography import x509

        certificates = [x509.load_der_x509_certificate(one) for one in chain]
        for name, hook in self._verifiers:
            if await self._run(name, hook, host, certificates) is False:
                raise Denied(f"hook: {name}", f"the hook {name} does not accept the certificates of {host}")

    async def _message(self, name: str, hook: Callable[..., object], kind: type[M], *messages: Any) -> M:
        answer = await self._run(name, hook, *messages)
        if answer is None:
            raise Denied(f"hook: {name}", f"blocked by {name}")
        if not isinstance(answer, kind):
            raise Denied(f"hook: {name}", f"{name} returned {type(answer).__name__} instead of the message or None")
        return answer

    async def _run(self, name: str, hook: Callable[..., object], *arguments: Any) -> object:
        import asyncio  # not above: this module is loaded when a sandbox with hooks or secrets starts
        from inspect import iscoroutinefunction

        loop = asyncio.get_running_loop()
        for one in arguments:
            if isinstance(one, Request | Response):
                one.bind(loop)
        try:
            async with asyncio.timeout(TIMEOUT):
                if iscoroutinefunction(hook):
                    return await hook(*arguments)
                return await self._in_thread(hook, *arguments)
        except Denied as problem:  # the script's, or a body too large to be looked at whole
            raise Denied(f"hook: {name}", f"{name}: {problem.reason}") from None
        except Blocked as problem:
            raise Denied(f"hook: {name}", str(problem) or f"blocked by {name}") from None
        except TimeoutError:
            raise Denied(f"hook: {name}", f"{name} did not answer within {TIMEOUT:g} s") from None
        except Exception as problem:  # whatever a hook raises refuses the request
            # The type only: a message may hold what the hook was looking at.
            raise Denied(f"hook: {name}", f"{name} failed: {type(problem).__name__}") from problem

    async def _in_thread(self, hook: Callable[..., object], *arguments: Any) -> object:
        """Out of the loop's way, at most WORKERS at a time. A hook that hangs keeps its place until it ends: its
        request has long been refused, and when all places are taken so are the others."""
        import asyncio

        from sandbox.network.threads import in_thread

        if self._places is None:
            self._places = asyncio.Semaphore(WORKERS)
        places, loop = self._places, asyncio.get_running_loop()
        await places.acquire()

        def run() -> object:
            try:
                return hook(*arguments)
            finally:
                try:
                    loop.call_soon_threadsafe(places.release)
                except RuntimeError:
                    pass  # the gate has ended meanwhile

        return await in_thread(run)


def _hooks(hooks: object | None, name: str) -> list[Hook]:
    hook = getattr(hooks, name, None)
    if hook is None:
        return []
    own = getattr(hook, "__qualname__", "") or type(hook).__name__
    return [(own if own.endswith(name) else f"{name} ({own})", hook)]
