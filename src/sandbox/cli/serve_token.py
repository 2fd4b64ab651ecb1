"""`sandbox serve token new|list|revoke`."""

from __future__ import annotations

import time

from sandbox.cli.output import print_json, table
from sandbox.errors import InvalidArgument
from sandbox.server import scopes
from sandbox.server.tokens import Tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from sandbox.server.tokens import Token


def run(words: list[str], arguments: Namespace) -> int:
    tokens = Tokens()
    match words:
        case ["new"]:
            return _new(tokens, arguments)
        case ["list"] | []:
            return _list(tokens.valid(), arguments.json)
        case ["revoke", *ids] if ids:
            for id in ids:
                tokens.revoke(id)
            return 0
    raise InvalidArgument("sandbox serve token new --scope …, list, or revoke ID")


def _new(tokens: Tokens, arguments: Namespace) -> int:
    from sandbox.cli.option_values import given
    from sandbox.config.units import seconds

    lifetime = None if arguments.expires is None else given("--expires", seconds, arguments.expires)
    verbs = scopes.read(arguments.scope)
    text, made = tokens.new(verbs, name=arguments.label, sandboxes=arguments.sandbox, lifetime=lifetime)
    if arguments.json:
        print_json({"token": text, **_plain(made)})
    else:
        print(text)
    return 0


def _list(found: list[Token], as_json: bool) -> int:
    if as_json:
        print_json([_plain(one) for one in found])
    elif found:
        rows = (
            (one.id, one.name or "-", ",".join(one.scopes), ",".join(one.sandboxes) or "*", _date(one.expires))
            for one in found
        )
        print(table(rows, ("ID", "NAME", "SCOPES", "SANDBOXES", "EXPIRES")))
    return 0


def _plain(one: Token) -> dict[str, object]:
    return {"id": one.id, "name": one.name, "scopes": one.scopes, "sandboxes": one.sandboxes, "expires": one.expires}


def _date(moment: int | None) -> str:
    return "-" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
