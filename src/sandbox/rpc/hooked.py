"""The client's half of hooks: our questions put to an object like the one that `Sandbox(hooks=…)` takes."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from sandbox.network.http.body import Whole
from sandbox.network.http.headers import Headers
from sandbox.network.http.message import Request, Response

_HTTP = ("on_request", "on_response", "on_tls_verify")


def named(hooks: object) -> dict[str, Any]:
    """The hooks that the object has, as `create` wants them."""
    found = [name for name in dir(hooks) if name in _HTTP or name.startswith(("before_", "after_"))]
    return {name: {"body": name in ("on_request", "on_response")} for name in found if callable(getattr(hooks, name))}


def answer(hooks: object, params: dict[str, Any]) -> dict[str, Any]:
    """What the object says to one question. Whatever it raises is a refusal, and its words the reason."""
    try:
        return _answer(hooks, params)
    except Exception as problem:  # noqa: BLE001 - a hook is the user's code
        return {"blocked": str(problem) or type(problem).__name__}


def _answer(hooks: object, params: dict[str, Any]) -> dict[str, Any]:
    name = params["name"]
    hook = getattr(hooks, name)
    if name == "on_request":
        request = hook(_request(params["request"]))
        return {"blocked": f"blocked by {name}"} if request is None else {"request": _shown_request(request)}
    if name == "on_response":
        given = msgspec.convert(params["response"], _Message)
        response = hook(Response(given.status, _headers(given), Whole(given.body)), _request(params["request"]))
        if response is None:
            return {"blocked": f"blocked by {name}"}
        return {"response": {"status": response.status, **_shown(response)}}
    if name == "on_tls_verify":
        from cryptography import x509

        chain = [x509.load_der_x509_certificate(one) for one in msgspec.convert(params["certificates"], list[bytes])]
        refused = hook(params["host"], chain) is False
        return {"blocked": f"{name} does not accept the certificates of {params['host']}"} if refused else {}
    hook(*params["args"])
    return {}


class _Message(msgspec.Struct):
    headers: list[tuple[str, str]]
    method: str = ""
    url: str = ""
    status: int = 0
    body: bytes = b""


def _request(shown: Any) -> Request:
    given = msgspec.convert(shown, _Message)
    parts = urlsplit(given.url)
    request = Request(given.method, parts.scheme, "", 0, "", _headers(given), Whole(given.body))
    request.url = given.url
    return request


def _headers(given: _Message) -> Headers:
    return Headers((name.encode("latin-1"), value.encode("latin-1")) for name, value in given.headers)


def _shown_request(request: Request) -> dict[str, Any]:
    return {"method": request.method, "url": request.url, **_shown(request)}


def _shown(message: Request | Response) -> dict[str, Any]:
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.headers.pairs]
    return {"headers": pairs, "body": message.body}
