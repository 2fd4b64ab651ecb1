"""Credentials that the tenant never sees: it has a placeholder, and the gate inserts the value on the way out.

A value goes only to a host that its secret names, only over verified TLS, and only into the places it is meant for. A
placeholder on its way to any other host stops the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from sandbox.errors import Denied
from sandbox.network.http.body import EMPTY
from sandbox.network.http.compression import decompressor
from sandbox.network.secrets.fill_body import filled
from sandbox.network.secrets.guarded_body import Guarded
from sandbox.network.secrets.placeholder_search import word_in
from sandbox.network.secrets.readable_answers import ask_for_readable
from sandbox.network.secrets.request_head import filled_field, request_head

if TYPE_CHECKING:
    from sandbox.network.http.message import Request
    from sandbox.network.secrets.held_secret import Held
    from sandbox.network.secrets.store import Known, Secrets


async def put_in(secrets: Secrets, request: Request, besides: bytes | None = None) -> None:
    """Replaces placeholders in `request` by values. Raises Denied. Nothing has been sent when it returns.

    `besides`: a placeholder that the body may contain nevertheless, because the caller replaces it."""
    if not secrets:
        return
    secrets.follow_logins()
    known = secrets.known(request.host, request.port)
    secrets.refuse_in(request_head(request), request.host, request.port)
    usable = known.usable
    if usable and request.scheme != "https":
        _refuse_unencrypted(request, usable)
        usable = []
    values = await _values_for(secrets, request, usable)
    for one, value in values:
        before = request.headers.pairs, request.target
        if "header" in one.places:
            request.headers.pairs = [filled_field(pair, one.placeholder, value) for pair in request.headers.pairs]
        if "query" in one.places and request.query:
            query = request.query.encode("latin-1")
            request.query = query.replace(one.placeholder, quote(value, safe="").encode()).decode("latin-1")
        if (request.headers.pairs, request.target) != before:
            request.uses.put_in(one.name)
    ask_for_readable(request.headers, confided=known.confided)
    await _guard_body(secrets, request, known, values, usable, besides)


async def _values_for(secrets: Secrets, request: Request, usable: list[Held]) -> list[tuple[Held, bytes]]:
    """The current values that `request` may need. Raises Denied when it needs a secret that has no value."""
    found: list[tuple[Held, bytes]] = []
    for one in usable:
        there = word_in(request_head(request), [one.placeholder]) is not None
        in_body = "body" in one.places and request.stream is not EMPTY
        if not (there or in_body):
            continue
        await one.ready()
        value = secrets.learn(one)
        if value is not None:
            found.append((one, value))
        elif there:
            raise secrets.without_value(one)
    return found


async def _guard_body(
    secrets: Secrets,
    request: Request,
    known: Known,
    values: list[tuple[Held, bytes]],
    usable: list[Held],
    besides: bytes | None,
) -> None:
    if request.stream is EMPTY:
        return
    inflate = decompressor(request.headers)
    empty = {one.placeholder: one for one in usable if "body" in one.places and one.value is None}

    def refusal(word: bytes) -> Denied:
        return secrets.without_value(empty[word]) if word in empty else secrets.refusal(word, request.host)

    guarded = Guarded(
        request.stream,
        [*(word for word in known.forbidden if word != besides), *empty],
        inflate,
        refusal,
        request.allowance,
        secrets.looking(),
    )
    await guarded.inspect()
    request.stream = guarded
    words = {one.placeholder: value for one, value in values if "body" in one.places}
    if words:
        names = {one.placeholder: one.name for one, _ in values}
        request.stream = filled(
            request.headers, request.stream, words, secrets.unwritable, lambda word: request.uses.put_in(names[word])
        )
        if isinstance(request.stream, Guarded):
            await request.stream.inspect()


def _refuse_unencrypted(request: Request, usable: list[Held]) -> None:
    for one in usable:
        if word_in(request_head(request), [one.placeholder]) is not None:
            raise Denied(one.setting, "the secret {name} is sent over https only", name=one.name)
