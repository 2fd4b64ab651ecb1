"""The real agents, from npm and PyPI, at a terminal in their sandbox: `make agents` installs them into .agents/."""

from __future__ import annotations

import pytest

from tests.agents.apis import SAID
from tests.agents.conftest import Desk
from tests.agents.real import AGENTS, MADE, Agent

pytestmark = pytest.mark.walls


@pytest.mark.parametrize("agent", AGENTS, ids=lambda one: one.name)
def test_it_starts_answers_edits_a_file_and_ends(desk: Desk, agent: Agent) -> None:
    directory = agent.directory
    if directory is None:
        pytest.skip(f"{agent.name} is not installed: make agents")
    made = desk.project / "made.txt"
    desk.world.answer = agent.answer(made)
    desk.env |= {agent.variable: agent.key, "PATH": f"{directory}:{desk.env['PATH']}", **agent.env}
    desk.has(agent.files)
    with desk.screen(agent.name, *agent.words) as screen:
        screen.sees(*agent.ready)
        screen.types("please write the file")
        screen.sees("please write the file")
        screen.types("\r")
        if agent.asks:
            screen.sees(agent.asks)
            screen.types(agent.yes)
        screen.sees(SAID)
        screen.ends("\x03")
    assert made.read_text() == MADE
    sent = desk.world.sent(agent.host)
    assert any(agent.key in value for one in sent for _, value in one["headers"]), "the mock never saw the real key"
    inside = desk.run("run", "--profile", agent.name, "--", "env")
    assert f"{agent.variable}=" in inside.stdout, inside.stderr
    assert agent.key not in inside.stdout
    kept = [one for one in desk.kept(agent.name).rglob("*") if one.is_file() and not one.is_symlink()]
    assert kept
    assert not [one for one in kept if agent.key.encode() in one.read_bytes()]
