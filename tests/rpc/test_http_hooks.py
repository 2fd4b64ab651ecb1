"""A client's hooks on requests: what they are shown, and what their answers change, at the real gate."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sandbox.errors import Denied
from sandbox.network.http.message import Request, Response
from sandbox.rpc.hooks import answer, named, remote_hooks
from tests.network.room import LOCAL, Origin, Walled

pytestmark = pytest.mark.walls


class Client:
    """What a client in another process says to hooks; everything crosses as JSON."""

    def __init__(self, **answers: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answers = answers

    def __call__(self, params: dict[str, Any]) -> Any:
        shown = msgspec.json.decode(msgspec.json.encode(params))
        self.asked.append(shown)
        return msgspec.json.decode(msgspec.json.encode(self._answers[shown["name"]](shown)))


@pytest.fixture
def ask(walled: Callable[..., Walled], origin: Origin) -> Callable[..., str]:
    """Makes a request from inside, past the client's hooks; returns what the tenant got."""

    def run(client: Client, hooks: dict[str, dict[str, bool]], *options: str) -> str:
        room = walled(
            names={"api.test": LOCAL}, allowed_hosts=["api.test", *LOCAL], more={"hooks": remote_hooks(hooks, client)}
        )
        return room.run("curl", "-sS", *options, f"http://api.test:{origin.port}/asked").stdout

    return run


def test_a_hook_sees_the_request_and_may_change_it(ask: Callable[..., str], origin: Origin) -> None:
    def on_request(params: dict[str, Any]) -> dict[str, Any]:
        return {"request": {"url": params["request"]["url"].replace("/asked", "/changed")}}

    client = Client(on_request=on_request)
    assert ask(client, {"on_request": {}}) == f"GET /changed for api.test:{origin.port}\n"
    (asked,) = client.asked
    assert (asked["request"]["method"], asked["request"]["url"]) == ("GET", f"http://api.test:{origin.port}/asked")
    assert ["Host", f"api.test:{origin.port}"] in asked["request"]["headers"]
    assert "body" not in asked["request"]


def test_a_hook_may_replace_the_body_it_asked_for(ask: Callable[..., str]) -> None:
    def on_request(params: dict[str, Any]) -> dict[str, Any]:
        assert params["request"]["body"] == "dHdvIHdvcmRz"
        return {"request": {**params["request"], "body": "b25l"}}

    assert ask(Client(on_request=on_request), {"on_request": {"body": True}}, "-d", "two words") == "got 3"


def test_an_empty_body_in_the_answer_empties_the_body(ask: Callable[..., str]) -> None:
    def on_request(_: dict[str, Any]) -> dict[str, Any]:
        return {"request": {"body": ""}}

    assert ask(Client(on_request=on_request), {"on_request": {}}, "-d", "two words") == "got 0"
    empties = Client(on_response=lambda _: {"response": {"body": ""}})
    assert ask(empties, {"on_response": {}}) == ""


@pytest.mark.parametrize(
    "answer",
    [
        {"blokced": "no"},
        {"response": {}},
        {"request": {"bdy": ""}},
        {"request": {"method": ""}},
        {"request": {"url": ""}},
        {"request": []},
        None,
        True,
    ],
)
def test_an_answer_that_is_not_valid_refuses_and_names_the_hook(ask: Callable[..., str], answer: Any) -> None:
    got = ask(Client(on_request=lambda _: answer), {"on_request": {}})
    assert "on_request: invalid hook answer" in got
    assert "locals" not in got and "_on_request" not in got


def test_a_hook_may_change_the_answer(ask: Callable[..., str]) -> None:
    def on_response(params: dict[str, Any]) -> dict[str, Any]:
        assert params["response"]["status"] == 200
        return {"response": {"body": "Y2hhbmdlZA=="}}

    assert ask(Client(on_response=on_response), {"on_response": {"body": True}}) == "changed"


def test_a_hook_that_says_nothing_leaves_everything_as_it_is(ask: Callable[..., str], origin: Origin) -> None:
    client = Client(on_request=lambda _: {}, on_response=lambda _: {})
    assert ask(client, {"on_request": {}, "on_response": {}}) == f"GET /asked for api.test:{origin.port}\n"


@pytest.mark.parametrize("name", ["on_request", "on_response"])
def test_a_hook_that_blocks_gives_the_reason(ask: Callable[..., str], name: str) -> None:
    assert "only on weekdays" in ask(Client(**{name: lambda _: {"blocked": "only on weekdays"}}), {name: {}})


def test_a_hook_may_refuse_with_a_status_of_its_own(ask: Callable[..., str], origin: Origin) -> None:
    client = Client(on_request=lambda _: {"blocked": "not for you", "status": 451})
    got = ask(client, {"on_request": {}}, "-w", "%{http_code}")
    assert "not for you" in got
    assert got.endswith("451")


@pytest.mark.parametrize("status", [200, 302, 600, "451", 403.5])
def test_a_hook_answer_with_a_success_status_still_refuses(ask: Callable[..., str], status: object) -> None:
    client = Client(on_request=lambda _: {"blocked": "no", "status": status})
    assert ask(client, {"on_request": {}}, "-o", "/dev/null", "-w", "%{http_code}") == "403"


@pytest.mark.parametrize("answer", [{"status": 451}, {"status": 451, "blocked": None}, {"status": 451, "request": {}}])
def test_a_status_without_a_reason_refuses(ask: Callable[..., str], answer: dict[str, Any]) -> None:
    assert "on_request: invalid hook answer" in ask(Client(on_request=lambda _: answer), {"on_request": {}})


def test_a_client_that_fails_refuses(ask: Callable[..., str]) -> None:
    def gone(_: dict[str, Any]) -> dict[str, Any]:
        raise Denied("hook: on_request", "the client that provides the hook has disconnected")

    assert "disconnected" in ask(Client(on_request=gone), {"on_request": {}})


def test_a_python_client_answers_with_an_object_like_the_one_in_process(ask: Callable[..., str]) -> None:
    class Hooks:
        def on_request(self, request: Request) -> Request | None:
            if "/asked" not in request.path:
                return None
            request.path = "/changed"
            request.headers.set("X-Hook", "yes")
            return request

        def on_response(self, response: Response, request: Request) -> Response:
            response.body = response.body.upper()
            return response

    hooks = Hooks()
    client = Client(on_request=lambda asked: answer(hooks, asked), on_response=lambda asked: answer(hooks, asked))
    assert ask(client, named(hooks)).startswith("GET /CHANGED FOR API.TEST")
    refusing = Client(on_request=lambda asked: answer(SimpleNamespace(on_request=lambda _: None), asked))
    assert "blocked by on_request" in ask(refusing, {"on_request": {}})
