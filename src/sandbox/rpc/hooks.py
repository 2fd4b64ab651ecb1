"""Hooks that live in the client: the sandbox's side asks, the client's code decides.

A client names the hooks it has in `create` (`"hooks": {"on_request": {"body": true}, "after_write": {}}`) and then gets
requests of ours, `{"method": "hook", "params": {"name": …}, "id": "hook-1"}`. Whatever is not a clear answer in time
refuses, as everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

import msgspec

from sandbox.errors import ConfigError, Denied, Message, message_of

Ask = Callable[[dict[str, Any]], Any]

_FILES = re.compile(r"(before|after)_[a-z]+")


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    body: bool = False  # whether the message's body goes along; it is then held in memory


class _Shown(msgspec.Struct):
    """A request or response as the client gives it back. Absent: not changed."""

    method: str | None = None
    url: str | None = None
    status: int | None = None
    headers: list[tuple[str, str]] | None = None
    body: bytes | None = None


class _Answer(msgspec.Struct):
    blocked: str | None = None
    request: _Shown | None = None
    response: _Shown | None = None


class _Message(Protocol):
    headers: Any
    body: bytes


def remote_hooks(asked: object, ask: Ask) -> SimpleNamespace:
    """An object with the hooks that the client said it has. Raises ConfigError."""
    try:
        named = msgspec.convert(asked, dict[str, _Options])
    except msgspec.ValidationError as problem:
        raise ConfigError(message_of(problem), path="hooks") from None
    hooks = SimpleNamespace()
    for name, options in named.items():
        if name in _HTTP:
            setattr(hooks, name, _HTTP[name](ask, options.body))
        elif _FILES.fullmatch(name):
            setattr(hooks, name, _file_hook(ask, name))
        else:
            raise ConfigError("unknown hook {name!r}", name=name, path="hooks")
    return hooks


def _asked(ask: Ask, name: str, **params: Any) -> _Answer:
    """The client's answer. Raises Denied when it refuses, fails, or says nothing we understand."""
    try:
        answer = msgspec.convert(ask({"name": name, **params}), _Answer)
    except msgspec.ValidationError as problem:
        raise Denied(f"hook: {name}", "invalid hook answer: {problem}", problem=problem) from None
    if answer.blocked is not None:
        raise Denied(f"hook: {name}", answer.blocked or Message("blocked by {name}", name=name))
    return answer


def _on_request(ask: Ask, body: bool) -> Callable[[Any], Any]:
    def on_request(request: Any) -> Any:
        answer = _asked(ask, "on_request", request=_request(request, body))
        changed = answer.request or _Shown()
        request.method = changed.method or request.method
        if changed.url is not None and changed.url != request.url:
            request.url = changed.url
        _change(request, changed)
        return request

    return on_request


def _on_response(ask: Ask, body: bool) -> Callable[[Any, Any], Any]:
    def on_response(response: Any, request: Any) -> Any:
        shown = {"status": response.status, **_shown(response, body)}
        answer = _asked(ask, "on_response", response=shown, request=_request(request, False))
        changed = answer.response or _Shown()
        response.status = changed.status or response.status
        _change(response, changed)
        return response

    return on_response


def _on_tls_verify(ask: Ask, _: bool) -> Callable[[str, list[Any]], bool]:
    def on_tls_verify(host: str, certificates: list[Any]) -> bool:
        from cryptography.hazmat.primitives.serialization import Encoding

        chain = [certificate.public_bytes(Encoding.DER) for certificate in certificates]
        _asked(ask, "on_tls_verify", host=host, certificates=chain)
        return True

    return on_tls_verify


_HTTP: Mapping[str, Callable[[Ask, bool], Callable[..., Any]]] = {
    "on_request": _on_request,
    "on_response": _on_response,
    "on_tls_verify": _on_tls_verify,
}


def _file_hook(ask: Ask, name: str) -> Callable[..., None]:
    def hook(*arguments: Any) -> None:
        _asked(ask, name, args=[dict(one) if isinstance(one, Mapping) else one for one in arguments])

    return hook


def _request(request: Any, body: bool) -> dict[str, Any]:
    return {"method": request.method, "url": request.url, **_shown(request, body)}


def _shown(message: _Message, body: bool) -> dict[str, Any]:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.headers.pairs]
    return {"headers": headers} | ({"body": message.body} if body else {})


def _change(message: _Message, changed: _Shown) -> None:
    if changed.body is not None and changed.body != message.body:
        message.body = changed.body
        # The length that the client gave back is that of the body it was shown.
        if changed.headers is not None:
            left_out = ("content-length", "transfer-encoding", "content-encoding")
            changed.headers = [pair for pair in changed.headers if pair[0].lower() not in left_out]
            changed.headers.append(("Content-Length", str(len(changed.body))))
    if changed.headers is not None:
        message.headers.pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in changed.headers]
