"""`sandbox mcp`: a person answers in their MCP client, by the protocol of today and by the one before it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp.client import Client
from mcp_types import ElicitResult

from sandbox.client import attach
from sandbox.registry.registry import entries
from tests.cli.test_asks import TRIED
from tests.integrations.test_mcp_server import project, talk, text
from tests.network.room import Origin, origin
from tests.patience import until
from tests.sandboxes import home

__all__ = ["home", "origin", "project"]
pytestmark = pytest.mark.walls
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
CURL = {"command": "curl -sS http://good.test/x; echo; echo done"}
YES = {"write_them": True}


class Person:
    """Gives these answers in turn, the last one again and again, and keeps the questions."""

    def __init__(self, *answers: ElicitResult) -> None:
        self._answers = answers
        self.asked: list[str] = []

    async def __call__(self, _: Any, question: Any) -> ElicitResult:
        self.asked.append(question.message)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


def says(content: dict[str, Any]) -> ElicitResult:
    return ElicitResult(action="accept", content=content)


NO = (ElicitResult(action="decline"), ElicitResult(action="cancel"))


@pytest.fixture
def asking(home: Path, origin: Origin) -> None:
    """A host that is not listed; its name leads to a proxy, and allowed means that the gate tried."""
    home.mkdir(exist_ok=True)
    network = {"upstream_proxy": f"http://127.0.0.1:{origin.port}", "ask_timeout": "10m", "ask": True}
    (home / "config.yaml").write_text(yaml.safe_dump({"network": network}))


@MODES
def test_the_persons_yes_writes_the_changes_to_their_files(home: Path, project: Path, mode: str) -> None:
    person = Person(says(YES))

    async def what(client: Client) -> Any:
        await client.call_tool("write_file", {"path": "a", "content": "x"})
        await client.call_tool("write_file", {"path": "b", "content": "y"})
        return text(await client.call_tool("apply_changes", {"paths": ["a"]}))

    assert talk(project, what, "--overlay", elicitation_callback=person, mode=mode) == "applied 1, refused 0"
    assert (project / "a").read_text() == "x" and not (project / "b").exists()
    (question,) = person.asked
    assert question.startswith("Write 1 change(s) to your files? 'added a'")


@MODES
def test_anything_but_a_yes_writes_nothing(home: Path, project: Path, mode: str) -> None:
    answers = (*NO, says({"write_them": False}), says({}))

    async def what(client: Client) -> Any:
        await client.call_tool("write_file", {"path": "a", "content": "x"})
        return [(await client.call_tool("apply_changes", {})).is_error for _ in answers]

    person = Person(*answers)
    assert all(talk(project, what, "--overlay", elicitation_callback=person, mode=mode))
    assert not (project / "a").exists() and len(person.asked) == len(answers)


def test_a_yes_is_for_what_was_shown(home: Path, project: Path) -> None:
    """The model writes the file again while the person looks at the question."""
    asked: list[str] = []

    async def what(client: Client) -> Any:
        await client.call_tool("write_file", {"path": "a", "content": "shown"})
        async with asyncio.timeout(100):
            return text(await client.call_tool("apply_changes", {}))

    async def person(context: Any, question: Any) -> ElicitResult:
        asked.append(question.message)
        if len(asked) == 1:
            await context.session.call_tool("write_file", {"path": "a", "content": "swapped"})
            return says(YES)
        return ElicitResult(action="decline")

    assert "did not agree" in talk(project, what, "--overlay", elicitation_callback=person, mode="auto")
    assert len(asked) == 2 and asked[0] != asked[1] and not (project / "a").exists()


@MODES
def test_a_host_that_is_not_listed_is_asked_about_and_then_reached(
    asking: None, home: Path, project: Path, mode: str
) -> None:
    person = Person(says({"answer": "once"}), says({"answer": "sandbox"}))

    async def what(client: Client) -> Any:
        done = [(await client.call_tool("run_command", CURL)).structured_content for _ in range(3)]
        return [one["stdout"] for one in done]

    for shown in talk(project, what, elicitation_callback=person, mode=mode):
        assert TRIED in shown and shown.endswith("done\n")
    assert person.asked == ["'curl' wants to connect to good.test:80: GET /x"] * 2  # the third time it is known
    settings = yaml.safe_load((home / "config.yaml").read_text())
    assert "allowed_hosts" not in settings["network"]


@MODES
def test_anything_but_a_yes_reaches_nothing(asking: None, home: Path, project: Path, mode: str) -> None:
    """Neither does "always", which is not offered here."""
    answers = (*NO, says({"answer": "deny"}), says({}), says({"answer": "always"}))

    async def what(client: Client) -> Any:
        command = "for n in 1 2 3 4 5; do curl -sS http://host$n.test/; echo; done"
        return (await client.call_tool("run_command", {"command": command})).structured_content

    person = Person(*answers)
    shown = talk(project, what, elicitation_callback=person, mode=mode)
    assert shown["stdout"].count("its owner was asked and denied it") == len(person.asked) == len(answers)


@MODES
def test_questions_that_come_at_once_are_asked_one_after_the_other(
    asking: None, home: Path, project: Path, mode: str
) -> None:
    """The person answers the first when all of them are there."""
    asked: list[str] = []

    async def person(_: Any, question: Any) -> ElicitResult:
        asked.append(question.message)
        if len(asked) == 1:
            await asyncio.to_thread(until, lambda: _waiting(home) == 3)
        return ElicitResult(action="decline")

    async def what(client: Client) -> Any:
        command = "for n in 1 2 3; do curl -sS http://host$n.test/ & done; wait"
        return (await client.call_tool("run_command", {"command": command})).structured_content

    shown = talk(project, what, elicitation_callback=person, mode=mode)
    assert shown["stdout"].count("its owner was asked and denied it") == len(asked) == 3


def _waiting(home: Path) -> int:
    """How many questions the one sandbox has."""
    (entry,) = entries(str(home))
    with attach(entry.id) as sandbox:
        return len(sandbox.asks())


@MODES
def test_python_asks_too_and_keeps_its_state(asking: None, home: Path, project: Path, mode: str) -> None:
    person = Person(says({"answer": "once"}))
    code = "import urllib.request, urllib.error\ntry:\n    urllib.request.urlopen('http://good.test/x')\n"
    code += "except urllib.error.HTTPError as e:\n    seen = e.read().decode()\nprint(seen)"

    async def what(client: Client) -> Any:
        first = text(await client.call_tool("run_python", {"code": code}))
        return first, text(await client.call_tool("run_python", {"code": "len(seen) > 0"}))

    first, kept = talk(project, what, elicitation_callback=person, mode=mode)
    assert TRIED in first and kept == "True" and len(person.asked) == 1


def test_a_client_that_cannot_ask_is_refused_at_once(asking: None, home: Path, project: Path) -> None:
    async def what(client: Client) -> Any:
        return (await client.call_tool("run_command", CURL)).structured_content["stdout"]

    assert "nobody was there to answer" in talk(project, what)
