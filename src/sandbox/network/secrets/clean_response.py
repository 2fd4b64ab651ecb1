"""Removes secret values from responses: each one that the sandbox was ever given is replaced by its placeholder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.network.http.body import EMPTY
from sandbox.network.http.compression import READABLE, content_encodings, decoded
from sandbox.network.secrets.readable_answers import refuse_unreadable
from sandbox.network.secrets.scrubbing import scrubbed_body, scrubbed_pairs

if TYPE_CHECKING:
    from sandbox.network.http.headers import Pair
    from sandbox.network.http.message import Request, Response
    from sandbox.network.secrets.store import Secrets


def clean(secrets: Secrets, response: Response, request: Request) -> None:
    """Replaces values in `response` by placeholders, as it passes. Raises Denied when it cannot be inspected and comes
    from a host that a secret is or was for."""
    if not secrets.values:
        return
    confided = secrets.known(request.host, request.port).confided
    response.headers.pairs = cleaned(secrets, response.headers.pairs, request)
    if response.stream is EMPTY:
        return
    if confided:
        refuse_unreadable(response, request)
    encodings = content_encodings(response.headers)
    if not confided and encodings and (len(encodings) > 1 or encodings[0] not in READABLE):
        return
    body = decoded(response.headers, response.stream)
    # Hosts without a secret have no reason to send a value, so their Content-Length is kept.
    kept = not confided and body.length is not None
    response.stream = scrubbed_body(
        body, secrets.values, response.headers, request, same_length=kept, readable=confided
    )
    response.headers.remove("Content-Length")
    if response.stream.length is not None:
        response.headers.set("Content-Length", str(response.stream.length))


def cleaned(secrets: Secrets, pairs: list[Pair], request: Request) -> list[Pair]:
    """Header fields of a response to `request`, without values."""
    return scrubbed_pairs(pairs, secrets.values, request.uses.taken_out) if secrets.values else pairs
