"""The owner's own code on the path of every request: Python hooks and the policy script, run so that neither
can hang the gate and so that a failure refuses the request.

    class MyHooks:
        def on_request(self, req): ...           # return req, changed or not; None or `raise Blocked(...)` refuses it
        def on_response(self, resp, req): ...    # the same for the response
        def on_tls_verify(self, host, certs): ...  # raise, or return False, to refuse upstream's certificates
        def on_ask(self, ask): ...               # "once", "sandbox", "always" or "deny"; see `asks/ways_to_ask.py`

Each may be a plain function, which runs in a worker thread and may block, or a coroutine function, which runs in the
gate's event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.errors import Denied, Message
from sandbox.network.http.message import Request, Response

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sandbox.info import Ask
    from sandbox.network.intercept.script import Script
    from sandbox.policy.decision import Decision

    Hook = tuple[str, Callable[..., object]]

M = TypeVar("M", Request, Response)

TIMEOUT = 30.0
WORKERS = 16


class Blocked(Exception):
    """Raised by a hook to refuse a request. Its text is the reason that the tenant, the event and the record show."""


class RefusedWith(Exception):
    """Raised by `srt proxy`'s hook to refuse a request with its own status and reason. `code` tells programs in one
    word who refused."""

    def __init__(self, status: int, reason: str, code: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.code = status, reason, code


class Hooks:
    """Hooks given as separate functions instead of a class."""

    def __init__(
        self,
        *,
        on_request: Callable[[Request], object] | None = None,
        on_response: Callable[[Response, Request], object] | None = None,
        on_tls_verify: Callable[[str, list[Any]], object] | None = None,
        on_ask: Callable[[Ask], object] | None = None,
    ) -> None:
        self.on_request = on_request
        self.on_response = on_response
        self.on_tls_verify = on_tls_verify
        self.on_ask = on_ask


class HookRunner:
    """The hooks of one sandbox, in order: first the owner's object, then the script."""

    def __init__(self, hooks: object | None, script: Script | None) -> None:
        self._script = script
        self._places: asyncio.Semaphore | None = None
        self.on_requests: list[Hook] = _hooks(hooks, "on_request")
        self.on_responses: list[Hook] = _hooks(hooks, "on_response")
        self._verifiers: list[Hook] = _hooks(hooks, "on_tls_verify")
        # Whether a hook may read response bodies; upstream is then asked not to compress them.
        self.reads_answers = bool(self.on_responses) or (script is not None and script.reads_bodies)
        if script is not None:
            self.on_requests += [("policy_script: on_request", script.on_request)] * script.has("on_request")
            self.on_responses += [("policy_script: on_response", script.on_response)] * script.has("on_response")

    def __bool__(self) -> bool:
        return bool(self.on_requests or self.on_responses or self._verifiers)

    def host_allowed(self, host: str) -> Decision | None:
        """What the script's `is_host_allowed` returns; None when it defines no such function."""
        return self._script.host_allowed(host) if self._script is not None else None

    async def request(self, request: Request) -> Request:
        """`request` after every hook has changed it. Raises Denied."""
        for name, hook in self.on_requests:
            request = await self._message(name, hook, Request, request)
        return request

    async def response(self, response: Response, request: Request) -> Response:
        """`response` after every hook has changed it. Raises Denied."""
        for name, hook in self.on_responses:
            response = await self._message(name, hook, Response, response, request)
        return response

    async def tls_verify(self, host: str, chain: list[bytes]) -> None:
        """Asks the hooks about upstream's certificates. Raises Denied."""
        if not self._verifiers:
            return
        from cryptography import x509

        certificates = [x509.load_der_x509_certificate(one) for one in chain]
        for name, hook in self._verifiers:
            if await self._run(name, hook, host, certificates) is False:
                raise Denied(
                    f"hook: {name}", "the hook {name} does not accept the certificates of {host}", name=name, host=host
                )

    async def _message(self, name: str, hook: Callable[..., object], kind: type[M], *messages: Any) -> M:
        answer = await self._run(name, hook, *messages)
        if answer is None:
            raise Denied(f"hook: {name}", "blocked by {name}", name=name)
        if not isinstance(answer, kind):
            raise Denied(
                f"hook: {name}",
                "{name} returned {kind} instead of the message or None",
                name=name,
                kind=type(answer).__name__,
            )
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
        except Denied as problem:  # from the script, or because a body is too large to buffer
            raise Denied(f"hook: {name}", "{name}: {reason}", name=name, reason=problem.reason) from None
        except Blocked as problem:
            raise Denied(f"hook: {name}", str(problem) or Message("blocked by {name}", name=name)) from None
        except RefusedWith:
            raise
        except TimeoutError:
            raise Denied(
                f"hook: {name}", "{name} did not answer within {timeout:g} s", name=name, timeout=TIMEOUT
            ) from None
        except Exception as problem:  # whatever a hook raises refuses the request
            # Only the type: the message may contain what the hook was reading.
            raise Denied(
                f"hook: {name}", "{name} failed: {error}", name=name, error=type(problem).__name__
            ) from problem

    async def _in_thread(self, hook: Callable[..., object], *arguments: Any) -> object:
        """Runs `hook` in a thread, at most WORKERS at a time. A hook that hangs keeps its place after its request was
        refused; once all places are taken, other requests are refused as well."""
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
                    pass  # the gate has closed

        return await in_thread(run)


def _hooks(hooks: object | None, name: str) -> list[Hook]:
    hook = getattr(hooks, name, None)
    if hook is None:
        return []
    own = getattr(hook, "__qualname__", "") or type(hook).__name__
    return [(own if own.endswith(name) else f"{name} ({own})", hook)]
