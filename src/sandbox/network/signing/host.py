"""The HTTP server that programs inside ask for signatures. It holds no key and decides nothing: it asks the signer.

POST /          a provider (JSON-RPC) for the first of signing.chains; POST /137 for another one
GET  /address   the account
POST /sign      the specification's request
GET  /sign/ID   the state of a request that waits for a person
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from sandbox.config.signing_section import Signing
from sandbox.errors import Denied, NotFound, SandboxError
from sandbox.network.http.body import EMPTY, Whole
from sandbox.network.http.body_memory import Allowance, CountedBytes
from sandbox.network.http.headers import Headers
from sandbox.network.http.message import BadMessage, Request, Response
from sandbox.network.signing.filling import Node, filled
from sandbox.network.signing.provider import ChainProvider, ProviderError
from sandbox.network.signing.quantities import BadParams
from sandbox.network.threads import in_thread
from sandbox.signing import client, strict_json

LONGEST = 2**20
MOST_AT_ONCE = 8 * LONGEST  # bytes of all requests that are read or wait: what JSON becomes takes many times as much
_SPEC = ("requestId", "createdAt")
_MOST_WAITING = 16
STEP = 60  # seconds of each wait for a person

# Sends a request to a node, under the sandbox's own network rules.
Fetch = Callable[[Request], Awaitable[Response]]


class SignerHost:
    """Answers one sandbox's requests."""

    def __init__(self, signing: Signing, sandbox_id: str, fetch: Fetch) -> None:
        self._signing = signing
        self._sandbox = sandbox_id
        self._fetch = fetch
        self._known_address: str | None = None
        self._waiting = asyncio.Semaphore(_MOST_WAITING)
        self._bodies = Allowance(MOST_AT_ONCE)

    async def __call__(self, request: Request) -> Response:
        """Answers every request, also with an error. Raises OSError or BadMessage when the body cannot be read."""
        try:
            if request.problem is not None:  # ambiguous HTTP, as for any other host
                return _json(request.problem.status, {"error": str(request.problem)})
            _refuse_pages(request)
            kept = self._bodies.keep(0)  # counts until the answer is there
            body = await self._whole(request, kept)
            return await self._answer(request, body)
        except BadMessage as problem:  # in the body
            return _json(problem.status, {"error": str(problem)})
        except strict_json.NotJson as problem:
            return _json(400, {"error": f"the body {problem}"})
        except (BadParams, ProviderError) as problem:
            return _json(400, {"error": str(problem)})
        except Denied as problem:
            return _json(403, {"error": str(problem.reason), "rule": problem.rule})
        except NotFound as problem:
            return _json(404, {"error": str(problem)})
        except SandboxError as problem:
            return _json(503, {"error": str(problem)})
        except (ValueError, RecursionError, TypeError):  # the node's answer is unusable
            return _json(502, {"error": "the node's answer cannot be read"})

    async def _whole(self, request: Request, kept: CountedBytes) -> bytes:
        data = bytearray()
        while piece := await request.stream.read():
            data += piece
            kept.add(len(piece))
            if len(data) > LONGEST:
                request.stream.close()
                raise Denied("body-too-large", "a request to the signer may have at most {most} bytes", most=LONGEST)
            if self._bodies.spent:
                request.stream.close()
                raise Denied("body-too-large", "too much is being sent to the signer at the same time")
        return bytes(data)

    async def _answer(self, request: Request, body: bytes) -> Response:
        match (request.method, request.target):
            case ("GET", "/address"):
                return _json(200, {"address": await self.address(), "chains": self._signing.chains})
            case ("POST", "/sign"):
                return await self._sign(body)
            case ("GET", path) if path.startswith("/sign/"):
                return await self._standing(path.removeprefix("/sign/"))
            case ("POST", path) if (chain := self._chain(path)) is not None:
                provider = ChainProvider(self, chain, self._node(chain), self._signing.broadcast)
                return _bytes(200, await provider.answer(body))
        return _json(404, {"error": "POST / (JSON-RPC), GET /address or POST /sign"})

    def _chain(self, path: str) -> int | None:
        """The chain that a provider's path is for."""
        chains = self._signing.chains
        if path == "/":
            return chains[0] if chains else None
        return next((one for one in chains if path == f"/{one}"), None)

    async def _sign(self, body: bytes) -> Response:
        given = strict_json.loads(body)
        if not isinstance(given, dict):
            raise strict_json.NotJson("is not an object")
        plain = {name: value for name, value in given.items() if name not in _SPEC}
        chain = plain.get("chainId")
        node = self._node(chain) if type(chain) is int else None
        if node is not None:
            plain = await filled(plain, await self.address(), node)
        told = await self._submit(given.get("requestId"), "transaction", plain)
        return _json(200 if told["success"] else 202 if told["pending"] else 403, {**told, "request": plain})

    async def _standing(self, id: str) -> Response:
        told = await in_thread(client.ask, self._message("wait", id=id, seconds=0))
        return _json(200 if told["success"] else 202 if told["pending"] else 403, told)

    # -- what a provider uses

    async def address(self) -> str:
        if self._known_address is None:
            self._known_address = str((await in_thread(client.ask, {"op": "address"}))["address"])
        return self._known_address

    async def signed(self, id: str, kind: str, request: Any) -> dict[str, Any]:
        told = await self._submit(id, kind, request)
        if not told.get("pending"):
            return told
        if self._waiting.locked():
            return told
        async with self._waiting:
            while told.get("pending"):
                told = await in_thread(client.ask, self._message("wait", id=id, seconds=STEP))
        return told

    async def _submit(self, id: Any, kind: str, request: Any) -> dict[str, Any]:
        return await in_thread(client.ask, self._message("submit", id=id, kind=kind, request=request))

    def _message(self, operation: str, **more: Any) -> dict[str, Any]:
        return {"op": operation, "asker": f"sandbox:{self._sandbox}", "sandbox": self._sandbox, **more}

    def _node(self, chain: int) -> Node | None:
        url = self._signing.rpc.get(str(chain))
        if url is None:
            return None

        async def call(method: str, params: Any) -> Any:
            answer = await self._fetch(node_request(url, method, params))
            return await node_result(answer)

        return call


def node_request(url: str, method: str, params: Any) -> Request:
    """The HTTP request for a call to a node. Raises ProviderError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ProviderError(-32603, "signing.rpc is not an http or https address")
    body = strict_json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    port = parts.port or (443 if parts.scheme == "https" else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
    host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    fields.insert(0, (b"Host", host.encode("ascii", "replace")))
    return Request("POST", parts.scheme, parts.hostname, port, target, Headers(fields), Whole(body))


async def node_result(answer: Response) -> Any:
    """What the node answered. Raises ProviderError with its error."""
    import json

    data = await answer.read()
    try:
        text = data.decode("utf-8")
        strict_json.shallow(text)
        told = json.loads(text)
        if "error" in told:
            error = told["error"]
            raise ProviderError(int(error.get("code", -32603)), str(error.get("message", "")), error.get("data"))
        return told["result"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        text = data[:500].decode("utf-8", "replace") if answer.status == 403 else f"HTTP status {answer.status}"
        raise ProviderError(-32603, f"the node did not answer: {text}") from None


def _refuse_pages(request: Request) -> None:
    """Raises Denied for what a browser sends. A page that is open inside is not the agent, and browsers send some
    requests to any host without asking it first: the page's site could spend what the policy allows."""
    if "Origin" in request.headers or "Sec-Fetch-Site" in request.headers:
        raise Denied("origin", "web pages get no signatures: only programs inside may ask")


def _json(status: int, told: Any) -> Response:
    return _bytes(status, strict_json.dumps(told))


def _bytes(status: int, data: bytes) -> Response:
    fields = [
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(data)),
        (b"Cache-Control", b"no-store"),
    ]
    return Response(status, Headers(fields), Whole(data) if data else EMPTY)
