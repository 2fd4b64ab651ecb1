"""Questions over JSON-RPC: a client watches and answers, or has an `on_ask`; the same in an asyncio program."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox import AsyncSandbox, Denied, InvalidArgument, NotFound, Sandbox
from sandbox.client import Client, attach
from sandbox.info import Ask
from tests.network.room import Origin, origin
from tests.rpc.raw import serving

pytestmark = pytest.mark.walls

__all__ = ["origin"]

FETCH = "curl -sS http://good.test/x"
TRIED = "the upstream proxy refused good.test:80"  # allowed: the stand-in for a proxy was asked


@pytest.fixture
def config(home: Path, origin: Origin) -> dict[str, Any]:
    return {"network": {"ask": True, "upstream_proxy": f"http://127.0.0.1:{origin.port}", "ask_timeout": 600}}


class Hooks:
    def __init__(self, answer: Callable[[Ask], Any]) -> None:
        self._answer = answer

    def on_ask(self, ask: Ask) -> Any:
        return self._answer(ask)


def test_a_client_that_watches_is_asked_and_answers(config: dict[str, Any]) -> None:
    with Sandbox(config) as sandbox, attach(sandbox.id) as client:
        asked: list[Ask] = []

        def hear(event: dict[str, Any]) -> None:
            if event["type"] == "ask" and event["ask"]["state"] == "waiting":
                asked.extend(client.asks())
                client.answer(event["ask"]["id"], "once")

        client.on_event(hear)
        assert client.asks(watch=True) == []
        assert TRIED in sandbox.exec(FETCH).stdout
        (ask,) = asked
        assert (ask.host, ask.port, ask.path, ask.program, ask.state) == ("good.test", 80, "/x", "curl", "waiting")
        with pytest.raises(NotFound, match="no question"):
            client.answer(ask.id, "deny")


def test_when_the_client_that_watched_has_left_nobody_is_there(config: dict[str, Any]) -> None:
    with Sandbox(config) as sandbox:
        gone = threading.Event()
        with attach(sandbox.id) as client:
            client.asks(watch=True)
            watchers = sandbox._asking()
            assert watchers._watchers == 1
        # The server learns of it in its own time.
        while watchers._watchers:
            gone.wait(0.001)
        assert "nobody was there" in sandbox.exec(FETCH).stdout


def test_a_client_that_only_looks_does_not_count_as_an_answerer(config: dict[str, Any]) -> None:
    with Sandbox(config) as sandbox, attach(sandbox.id) as client:
        assert client.asks() == []
        assert "nobody was there" in sandbox.exec(FETCH).stdout


def test_an_answer_that_there_is_not_is_an_error_and_answers_nothing(config: dict[str, Any]) -> None:
    with Sandbox(config) as sandbox, attach(sandbox.id) as client:
        problems: list[Exception] = []

        def hear(event: dict[str, Any]) -> None:
            if event["type"] == "ask" and event["ask"]["state"] == "waiting":
                try:
                    client.answer(event["ask"]["id"], "yes")
                except InvalidArgument as problem:
                    problems.append(problem)
                client.answer(event["ask"]["id"], "deny")

        client.on_event(hear)
        client.asks(watch=True)
        assert "denied it" in sandbox.exec(FETCH).stdout
        assert "'yes' is not an answer to this question; use one of once, sandbox, always, deny" in str(problems[0])


def test_a_clients_on_ask_answers(rpc: list[str], config: dict[str, Any]) -> None:
    seen: list[Ask] = []

    def answer(ask: Ask) -> str:
        seen.append(ask)
        return "sandbox"

    with Client(config, hooks=Hooks(answer), command=rpc) as client:
        assert client.exec(f"{FETCH}; {FETCH}").stdout.count(TRIED) == 2
    assert [(ask.host, ask.method, ask.program) for ask in seen] == [("good.test", "GET", "curl")]


async def _later(ask: Ask) -> str:
    await asyncio.sleep(0)
    return "once"


def _fails(ask: Ask) -> str:
    raise RuntimeError("no")


def _explains(ask: Ask) -> str:
    raise Denied("mirror", "use the\nmirror instead")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_later, TRIED),
        (_fails, "its owner was asked and denied it"),
        (_explains, "its owner was asked and denied it: use the mirror instead"),
        (lambda _: "yes", "its owner was asked and denied it"),
        (lambda _: "deny", "its owner was asked and denied it"),
        (lambda _: None, "nobody was there to answer"),
    ],
)
def test_a_clients_on_ask_fails_closed(
    rpc: list[str], config: dict[str, Any], answer: Callable[[Ask], Any], said: str
) -> None:
    with Client(config, hooks=Hooks(answer), command=rpc) as client:
        assert said in client.exec(FETCH).stdout


@pytest.mark.parametrize(
    "result", [{"answer": "yes"}, {"answer": 1}, {"anwser": "once"}, {"blocked": "no", "answer": "once"}, [], "once"]
)
def test_a_malformed_answer_of_a_client_denies(rpc: list[str], config: dict[str, Any], result: Any) -> None:
    with serving(rpc) as raw:
        assert "result" in raw.ask("create", **config, hooks={"on_ask": {}})
        raw.send({"jsonrpc": "2.0", "method": "exec", "params": {"command": FETCH}, "id": 2})
        hook = raw.receive()
        assert hook["method"] == "hook" and hook["params"]["name"] == "on_ask"
        assert hook["params"]["ask"]["host"] == "good.test" and hook["params"]["ask"]["timeout"] == 600
        raw.send({"jsonrpc": "2.0", "result": result, "id": hook["id"]})
        answered = raw.receive()
        assert answered["id"] == 2
        assert b"its owner was asked and denied it" in b64decode(answered["result"]["stdout"])


def test_in_an_asyncio_program_on_ask_runs_in_its_own_loop(config: dict[str, Any]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked: asyncio.Queue[Ask] = asyncio.Queue()

        class Own:
            async def on_ask(self, ask: Ask) -> str:
                assert asyncio.get_running_loop() is loop
                await asked.put(ask)
                return "once"

        async with AsyncSandbox(config, hooks=Own()) as sandbox:
            assert TRIED in (await sandbox.exec(FETCH)).stdout
            assert (await asked.get()).host == "good.test"
            assert await sandbox.asks() == []
            with pytest.raises(NotFound):
                await sandbox.answer(1_000_000, "once")

    asyncio.run(main())


def test_in_an_asyncio_program_a_failure_denies(config: dict[str, Any]) -> None:
    async def main() -> None:
        class Own:
            async def on_ask(self, ask: Ask) -> str:
                raise RuntimeError("no")

        async with AsyncSandbox(config, hooks=Own()) as sandbox:
            assert "denied it" in (await sandbox.exec(FETCH)).stdout

    asyncio.run(main())


def test_a_misspelt_on_ask_is_an_error() -> None:
    class Misspelt:
        def on_asks(self, ask: Ask) -> str:
            return "once"

    from sandbox.errors import ConfigError

    with pytest.raises(ConfigError, match="did you mean 'on_ask'"):
        Sandbox({}, hooks=Misspelt())
