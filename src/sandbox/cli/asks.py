"""`sandbox asks`: shows what sandboxes ask their owner. `sandbox allow` and `sandbox deny` answer."""

from __future__ import annotations

import os
import sys
from queue import Empty, SimpleQueue

from sandbox.cli.output import print_json, shown, table
from sandbox.config.home import home
from sandbox.errors import NotFound, SandboxError
from sandbox.i18n import _
from sandbox.registry.registry import entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator
    from typing import Any

    from sandbox.client import Client
    from sandbox.info import Ask

LOOK = 0.5  # seconds between looks for new sandboxes

# What an answer did, in the user's language.
DONE: dict[str, Callable[[], str]] = {
    "once": lambda: _("allowed once: {question}"),
    "sandbox": lambda: _("allowed for this sandbox: {question}"),
    "always": lambda: _("allowed from now on: {question}"),
    "deny": lambda: _("denied: {question}"),
}


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--follow", action="store_true", help=_("go on showing questions (the default on a terminal)"))
    parser.add_argument("--json", action="store_true", help=_("print JSON; with --follow, a line for each event"))


def run(arguments: Namespace) -> int:
    if arguments.follow or (os.isatty(1) and not arguments.json):
        return follow(arguments.json)
    found = [ask for _client, ask in waiting()]
    if arguments.json:
        print_json([dict(ask) for ask in found])
    elif found:
        print(table(((ask.id, ask.sandbox, ask.text) for ask in found), ("ASK", "SANDBOX", "QUESTION")))
    return 0


def waiting() -> Iterator[tuple[Client, Ask]]:
    """Every question that waits, in any running sandbox of this user, and a client to answer it with."""
    for client in _clients({}):
        with client:
            try:
                found = client.asks()
            except SandboxError:
                continue  # it has just ended
            yield from ((client, ask) for ask in found)


def _clients(known: dict[str, Client]) -> Iterator[Client]:
    """Clients of the running sandboxes that are not among `known`."""
    from sandbox.client import attach

    for entry in entries(home()):
        if entry.running and entry.id not in known:
            try:
                client = attach(entry.id)
            except SandboxError:
                continue  # it has just ended, or is not ready yet
            yield client


def answer(id: int, word: str, by: str) -> int:
    """Answers the question with that number, in whichever sandbox it waits. Raises NotFound."""
    for client, ask in waiting():
        if ask.id == id:
            client._answer(id, word, by)
            print(DONE[word]().format(question=shown(_.text(ask.text))))
            return 0
    raise NotFound("no question {id} is waiting: it was answered, or it timed out", id=id)


# -- following


def follow(as_json: bool) -> int:
    """Shows questions and answers as they arrive, until interrupted. While it runs, questions wait for an answer."""
    from sandbox.asks.stored_answers import watching

    held = watching()
    known: dict[str, Client] = {}
    seen: set[int] = set()
    happened: SimpleQueue[dict[str, Any]] = SimpleQueue()
    say = _json_line if as_json else _line
    if not as_json:
        how = _(
            "waiting for questions; answer with `sandbox allow N` or `sandbox deny N` in another terminal; Ctrl-C ends"
        )
        print(how, flush=True)
    try:
        while True:
            _attach_new(known, happened.put)
            try:
                event = happened.get(timeout=LOOK)
            except Empty:
                continue
            if event["state"] != "waiting" or event["id"] not in seen:
                seen.add(event["id"])
                say(event)
    finally:
        for client in known.values():
            client.close()
        os.close(held)


def _attach_new(known: dict[str, Client], put: Callable[[dict[str, Any]], object]) -> None:
    for id in [id for id, client in known.items() if client._connection.ended]:
        known.pop(id).close()

    def hear(event: dict[str, Any]) -> None:
        if event["type"] == "ask":
            put(event["ask"])

    for client in _clients(known):
        known[client.id] = client
        client.on_event(hear)
        try:
            found = client.asks(watch=True)
        except SandboxError:
            known.pop(client.id).close()  # it has just ended
            continue
        for ask in found:
            put(dict(ask))


def _line(event: dict[str, Any]) -> None:
    from sandbox.info import Ask

    ask = Ask(**event)
    if ask.state == "waiting":
        words = _("{id}  {sandbox}  {text}  ({seconds:.0f} s)")
        print(words.format(id=ask.id, sandbox=ask.sandbox, text=shown(ask.text), seconds=ask.timeout), flush=True)
        return
    how = f"{ask.state} ({ask.answer}, {ask.by})" if ask.answer else ask.state
    print(f"{ask.id}  {ask.sandbox}  {shown(how)}", flush=True)


def _json_line(event: dict[str, Any]) -> None:
    import json

    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
