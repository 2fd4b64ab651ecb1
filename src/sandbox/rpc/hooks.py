"""Hooks that live in the client: the server asks, the client's code decides.

A client names the hooks it has in `create` (`"hooks": {"on_request": {"body": true}, "after_write": {}}`) and then gets
requests from the server, `{"method": "hook", "params": {"name": …}, "id": "hook-1"}`. Anything but a clear answer in
time refuses. The first half of this file is the server's (`remote_hooks`), the second a Python client's (`answer`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

import msgspec

from sandbox.errors import Denied, Message
from sandbox.hook_names import ASK, HOOKS, HTTP, unknown_hook
from sandbox.rpc import errors
from sandbox.rpc.errors import Fault

if TYPE_CHECKING:
    from sandbox.network.http.headers import Headers
    from sandbox.network.http.message import Request, Response

Ask = Callable[[dict[str, Any]], Any]
A = TypeVar("A", bound="_Answer")

# -- the server's half


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    body: bool = False  # whether the message's body is sent along; it is then held in memory


class _Answer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Unknown fields are refused: a misspelt `blocked` must not let anything through."""

    blocked: str | None = None


class _Changes(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A message as the client returns it. An absent field means unchanged; an empty body replaces the body."""

    headers: list[tuple[str, str]] | None = None
    body: bytes | None = None


class _RequestChanges(_Changes, kw_only=True):
    method: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    url: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class _ResponseChanges(_Changes, kw_only=True):
    status: Annotated[int, msgspec.Meta(ge=100, le=999)] | None = None


class _RequestAnswer(_Answer, kw_only=True):
    request: _RequestChanges | None = None
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None  # of a refusal, instead of 403


class _ResponseAnswer(_Answer, kw_only=True):
    response: _ResponseChanges | None = None


class _AskAnswer(_Answer, kw_only=True):
    answer: Literal["once", "sandbox", "always", "deny"] | None = None  # None leaves the question to others


class _Message(Protocol):
    headers: Any
    body: bytes


class _Gate(msgspec.Struct, forbid_unknown_fields=True):
    certificate: Annotated[str, msgspec.Meta(max_length=2**20)]
    intercepts: bool = False


def remote_hooks(asked: object, ask: Ask, gate: object | None = None) -> SimpleNamespace:
    """An object with the hooks that the client says it has, and what it says about its gate.

    Raises ConfigError for an unknown name, and Fault.
    """
    if not isinstance(asked, dict):
        raise Fault(errors.INVALID_PARAMS, "hooks must be an object, not {kind}", kind=type(asked).__name__)
    hooks = SimpleNamespace()
    for name, value in asked.items():
        if name not in HOOKS:
            raise unknown_hook(name)
        try:
            options = msgspec.convert(value, _Options)
        except msgspec.ValidationError as problem:
            raise Fault(errors.INVALID_PARAMS, "hooks.{name}: {problem}", name=name, problem=problem) from None
        hook = _HTTP[name](ask, options.body) if name in _HTTP else _file_hook(ask, name)
        hook.__qualname__ = name  # what a refusal names
        setattr(hooks, name, hook)
    if gate is not None:
        from sandbox.network.forwarded_gate import ClientGate

        try:
            told = msgspec.convert(gate, _Gate)
        except msgspec.ValidationError as problem:
            raise Fault(errors.INVALID_PARAMS, "gate: {problem}", problem=problem) from None
        hooks.client_gate = ClientGate(told.certificate.encode(), told.intercepts)
    return hooks


def _asked(ask: Ask, kind: type[A], name: str, /, **params: Any) -> A:
    """The client's answer. Raises Denied when it refuses, fails, or the answer is not valid."""
    try:
        answer = msgspec.convert(ask({"name": name, **params}), kind)
    except msgspec.ValidationError as problem:
        raise Denied(f"hook: {name}", "invalid hook answer: {problem}", problem=problem) from None
    status = getattr(answer, "status", None)
    if answer.blocked is None and status is not None:
        raise Denied(f"hook: {name}", "invalid hook answer: {problem}", problem=Message("a status without `blocked`"))
    if answer.blocked is not None and status is None:
        raise Denied(f"hook: {name}", answer.blocked or Message("blocked by {name}", name=name))
    return answer


def _on_request(ask: Ask, body: bool) -> Callable[[Any], Any]:
    def on_request(request: Any) -> Any:
        answer = _asked(ask, _RequestAnswer, "on_request", request=_shown_request(request, body))
        if answer.blocked is not None:  # with a status of its own
            from sandbox.network.intercept.hooks import RefusedWith

            raise RefusedWith(answer.status or 403, answer.blocked or "blocked by on_request", "hook")
        changed = answer.request or _RequestChanges()
        request.method = changed.method or request.method
        if changed.url is not None and changed.url != request.url:
            request.url = changed.url
        _change(request, changed)
        return request

    return on_request


def _on_response(ask: Ask, body: bool) -> Callable[[Any, Any], Any]:
    def on_response(response: Any, request: Any) -> Any:
        shown = {"status": response.status, **_shown(response, body)}
        answer = _asked(ask, _ResponseAnswer, "on_response", response=shown, request=_shown_request(request, False))
        changed = answer.response or _ResponseChanges()
        response.status = changed.status or response.status
        _change(response, changed)
        return response

    return on_response


def _on_tls_verify(ask: Ask, _: bool) -> Callable[[str, list[Any]], bool]:
    def on_tls_verify(host: str, certificates: list[Any]) -> bool:
        from cryptography.hazmat.primitives.serialization import Encoding

        chain = [certificate.public_bytes(Encoding.DER) for certificate in certificates]
        _asked(ask, _Answer, "on_tls_verify", host=host, certificates=chain)
        return True

    return on_tls_verify


def _on_ask(ask: Ask, _: bool) -> Callable[[Any], str | None]:
    def on_ask(question: Any) -> str | None:
        return _asked(ask, _AskAnswer, ASK, ask=dict(question)).answer

    return on_ask


_HTTP: Mapping[str, Callable[[Ask, bool], Callable[..., Any]]] = {
    "on_request": _on_request,
    "on_response": _on_response,
    "on_tls_verify": _on_tls_verify,
    ASK: _on_ask,
}


def _file_hook(ask: Ask, name: str) -> Callable[..., None]:
    def hook(*arguments: Any) -> None:
        _asked(ask, _Answer, name, args=[dict(one) if isinstance(one, Mapping) else one for one in arguments])

    return hook


def _shown_request(request: Any, body: bool) -> dict[str, Any]:
    return {"method": request.method, "url": request.url, **_shown(request, body)}


def _shown(message: _Message, body: bool) -> dict[str, Any]:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.headers.pairs]
    return {"headers": headers} | ({"body": message.body} if body else {})


def _change(message: _Message, changed: _Changes) -> None:
    if changed.body is not None and changed.body != message.body:
        message.body = changed.body
        # The headers that the client returned still have the length of the old body.
        if changed.headers is not None:
            left_out = ("content-length", "transfer-encoding", "content-encoding")
            changed.headers = [pair for pair in changed.headers if pair[0].lower() not in left_out]
            changed.headers.append(("Content-Length", str(len(changed.body))))
    if changed.headers is not None:
        message.headers.pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in changed.headers]


# -- a Python client's half


def named(hooks: object, only: Sequence[str] | None = None) -> dict[str, Any]:
    """An object's hooks, or `only` these, as `create` takes them. Raises ConfigError for a method whose name looks like
    a hook's."""
    from sandbox.hook_names import names_of

    names = names_of(hooks) if only is None else only
    return {name: {"body": True} if name in ("on_request", "on_response") else {} for name in names}


def answer(hooks: object, params: dict[str, Any], offered: Collection[str] = HOOKS) -> dict[str, Any]:
    """The object's answer to one hook request. An exception refuses, and its message is the reason.

    Only hooks that were `offered` are called, because the server may be one that is not trusted: it must neither call
    other methods of the object, nor see what hooks of a gate on this machine put into requests.
    """
    if params.get("name") not in offered:
        return {"blocked": "this client has no such hook"}
    try:
        return _answer(hooks, params)
    except Exception as problem:  # noqa: BLE001 - a hook is the user's code
        return {"blocked": str(problem) or type(problem).__name__}


def _answer(hooks: object, params: dict[str, Any]) -> dict[str, Any]:
    name = params["name"]
    hook = getattr(hooks, name)
    if name == ASK:
        return _answer_ask(hook, params["ask"])
    if name not in HTTP:
        hook(*params["args"])
        return {}
    if name == "on_request":
        request = hook(_request(params["request"]))
        return {"blocked": f"blocked by {name}"} if request is None else {"request": _shown_request(request, True)}
    if name == "on_response":
        response = hook(_response(params["response"]), _request(params["request"]))
        if response is None:
            return {"blocked": f"blocked by {name}"}
        return {"response": {"status": response.status, **_shown(response, True)}}
    from cryptography import x509

    chain = [x509.load_der_x509_certificate(one) for one in msgspec.convert(params["certificates"], list[bytes])]
    refused = hook(params["host"], chain) is False
    return {"blocked": f"{name} does not accept the certificates of {params['host']}"} if refused else {}


def _answer_ask(hook: Callable[[Any], Any], told: dict[str, Any]) -> dict[str, Any]:
    from inspect import iscoroutine

    from sandbox.info import Ask

    answer = hook(Ask(**told))
    if iscoroutine(answer):
        import asyncio

        answer = asyncio.run(answer)
    return {} if answer is None else {"answer": answer}


class _Shown(msgspec.Struct):
    headers: list[tuple[str, str]]
    method: str = ""
    url: str = ""
    status: int = 0
    body: bytes = b""


def _request(shown: Any) -> Request:
    from urllib.parse import urlsplit

    from sandbox.network.http.body import Whole
    from sandbox.network.http.message import Request

    given = msgspec.convert(shown, _Shown)
    request = Request(given.method, urlsplit(given.url).scheme, "", 0, "", _headers(given), Whole(given.body))
    request.url = given.url
    return request


def _response(shown: Any) -> Response:
    from sandbox.network.http.body import Whole
    from sandbox.network.http.message import Response

    given = msgspec.convert(shown, _Shown)
    return Response(given.status, _headers(given), Whole(given.body))


def _headers(given: _Shown) -> Headers:
    from sandbox.network.http.headers import Headers

    return Headers((name.encode("latin-1"), value.encode("latin-1")) for name, value in given.headers)
