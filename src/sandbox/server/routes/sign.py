"""`/api/sandbox/sign…`: the specification's paths. The signer, a separate process, decides; nothing here holds a key.

An approval passes its token on to the signer, which checks it: this process could not approve by itself.
"""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, get, post
from msgspec import Meta, Struct

from sandbox.errors import Denied, NotFound, SandboxError
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.signing import client, strict_json

Amount = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,38})(?!\\n)$", examples=["1000000000000000"])]
Id = Annotated[str, Meta(min_length=1, max_length=128, examples=["req-1"])]


class Sign(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A transaction to sign. Missing fields are asked of the node in `signing.rpc`, if there is one."""

    requestId: Id
    chainId: Annotated[int, Meta(ge=1)]
    to: Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}(?!\\n)$", examples=[f"0x{'ab' * 20}"])]
    value: Amount
    data: Annotated[str, Meta(pattern="^0x([0-9a-fA-F]{2})*(?!\\n)$", examples=["0x"])]
    nonce: Annotated[int, Meta(ge=0)] | None = None
    gasLimit: Amount | None = None
    maxFeePerGas: Amount | None = None
    maxPriorityFeePerGas: Amount | None = None
    gasPrice: Amount | None = None
    createdAt: Annotated[int, Meta(ge=0)] | None = None


class Decide(Struct, forbid_unknown_fields=True):
    """Which request to decide. With `hash`, only if the request has that hash."""

    requestId: Id
    hash: Annotated[str, Meta(pattern="^0x[0-9a-f]{64}(?!\\n)$", examples=[f"0x{'ab' * 32}"])] | None = None


class SigningResult(Struct, kw_only=True):
    """`pending`: it needs a person's approval; ask again with the same content. `signature` is set after success."""

    success: bool
    requestId: str
    hash: str
    pending: bool
    policyDecision: dict[str, Any]
    humanConfirmed: bool
    signature: str | None = None
    error: str | None = None


class Pending(Struct):
    """The requests that wait for a person, oldest first."""

    pending: list[dict[str, Any]]


class Address(Struct):
    """The account that signs, and the chains it signs for."""

    address: str
    chains: list[int]


@post("/api/sandbox/sign", opt={"verb": "sign"}, status_code=200)
async def submit(
    server: Server, access: Access, request: Request[Any, Any, Any], data: Sign
) -> Response[SigningResult]:
    """Signs a transaction within the policy; 202 when it needs a person's approval, 403 when it is refused."""
    given = _strict(await request.body())
    plain = {
        name: value for name, value in given.items() if name not in ("requestId", "createdAt") and value is not None
    }
    plain = await _filled(server, plain)
    asker = f"token:{access.token}"
    message = {"op": "submit", "id": given["requestId"], "kind": "transaction", "request": plain}
    told = await _signer(server, client.ask, {**message, "asker": asker, "sandbox": asker})
    return _answer(told)


@post("/api/sandbox/sign/approve", opt={"verb": "approve"}, status_code=200)
async def approve(server: Server, request: Request[Any, Any, Any], data: Decide) -> Response[SigningResult]:
    """Approves a pending request: exactly what was asked for, if the policy still allows it."""
    return await _decide(server, request, "approve", data)


@post("/api/sandbox/sign/reject", opt={"verb": "approve"}, status_code=200)
async def reject(server: Server, request: Request[Any, Any, Any], data: Decide) -> SigningResult:
    """Rejects a pending request."""
    answer = await _decide(server, request, "reject", data)
    return answer.content


@get("/api/sandbox/sign/pending", opt={"verb": "read"})
async def pending(server: Server, access: Access) -> Pending:
    """The requests that wait for a person."""
    told = await _signer(server, client.decide, {"op": "pending"})
    return Pending([one for one in told["pending"] if access.reaches(one["sandbox"])])


@get("/api/sandbox/sign/address", opt={"verb": "read"})
async def address(server: Server) -> Address:
    """The account that signs."""
    told = await _signer(server, client.ask, {"op": "address"})
    return Address(told["address"], told["chains"])


async def _decide(server: Server, request: Request[Any, Any, Any], what: str, data: Decide) -> Response[SigningResult]:
    _strict(await request.body())
    token = request.headers.get("authorization", "").partition(" ")[2].strip()
    message: dict[str, Any] = {"op": what, "id": data.requestId, "credential": {"token": token}}
    if data.hash is not None:
        message["hash"] = data.hash
    return _answer(await _signer(server, client.decide, message))


async def _signer(server: Server, ask: Any, message: dict[str, Any]) -> dict[str, Any]:
    try:
        told: dict[str, Any] = await server.run(lambda: ask(message))
        return told
    except (Denied, NotFound):
        raise
    except SandboxError as problem:
        raise Refusal(409, "no_signer", str(problem)) from None


def _strict(body: bytes) -> dict[str, Any]:
    """The body, parsed strictly so that no other parser can read it differently: no duplicate keys, only whole numbers.

    Raises Refusal.
    """
    try:
        found = strict_json.loads(body)
    except strict_json.NotJson as problem:
        raise Refusal(400, "invalid", f"the body {problem}") from None
    return dict(found)


async def _filled(server: Server, plain: dict[str, Any]) -> dict[str, Any]:
    from sandbox.network.signing.filling import filled
    from sandbox.network.signing.provider import ProviderError
    from sandbox.network.signing.quantities import BadParams

    url = await server.run(lambda: server.sandboxes.configured({}).signing.rpc.get(str(plain.get("chainId"))))
    if url is None:
        return plain

    async def node(method: str, params: Any) -> Any:
        return await server.run(lambda: _call(url, method, params))

    try:
        told = await _signer(server, client.ask, {"op": "address"})
        return await filled(plain, told["address"], node)
    except (BadParams, ProviderError) as problem:
        raise Refusal(400, "invalid", str(problem)) from None


def _call(url: str, method: str, params: Any) -> Any:
    """The node's answer. The owner chose this node, in their own configuration."""
    import json
    import urllib.request

    from sandbox.network.signing.provider import ProviderError

    body = strict_json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read(16 * 2**20))["result"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ProviderError(-32603, f"the node did not answer: {type(problem).__name__}") from None


def _answer(told: dict[str, Any]) -> Response[SigningResult]:
    status = 200 if told["success"] else 202 if told["pending"] else 403
    fields = {name: told[name] for name in SigningResult.__struct_fields__ if name in told}
    return Response(SigningResult(**fields), status_code=status)


ROUTES = [submit, approve, reject, pending, address]
