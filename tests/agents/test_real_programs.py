"""The real agents, from npm and PyPI, at a terminal in their sandbox: `make agents` installs them into .agents/."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.agents import apis
from tests.agents.apis import SAID
from tests.agents.conftest import Desk
from tests.agents.real import AGENTS, MADE, WHERE, Agent
from tests.agents.screen import Screen

pytestmark = pytest.mark.walls


@pytest.mark.parametrize("agent", AGENTS, ids=lambda one: one.name)
def test_it_starts_answers_edits_a_file_and_ends(desk: Desk, agent: Agent) -> None:
    assert_it_writes_the_file(desk, agent)
    sent = desk.world.sent(agent.host)
    assert any(agent.key in value for one in sent for _, value in one["headers"]), "the mock never saw the real key"
    assert any(b"You run in a sandbox" in one["body"] for one in sent), "the model was not told where it is"
    inside = desk.run("run", "--profile", agent.name, "--", "env")
    assert f"{agent.variable}=" in inside.stdout, inside.stderr
    assert agent.key not in inside.stdout
    kept = [one for one in desk.kept(agent.name).rglob("*") if one.is_file() and not one.is_symlink()]
    assert kept
    assert not [one for one in kept if agent.key.encode() in one.read_bytes()]


@pytest.mark.parametrize("agent", [one for one in AGENTS if one.asks], ids=lambda one: one.name)
def test_trusted_it_writes_the_file_without_a_question(desk: Desk, agent: Agent) -> None:
    assert_it_writes_the_file(desk, agent, "--trust")


def assert_it_writes_the_file(desk: Desk, agent: Agent, *options: str) -> None:
    """Starts it at a terminal, asks for a file, and ends it."""
    installed(desk, agent.name)
    made = desk.project / "made.txt"
    desk.world.answer, desk.world.api, desk.world.also = agent.answer(made), agent.host, agent.also
    desk.env |= {agent.variable: agent.key, **agent.env}
    desk.has(agent.files)
    with desk.screen(agent.name, *options, *agent.words) as screen:
        screen.sees(*agent.ready)
        screen.types("please write the file")
        screen.sees("please write the file")
        sends(desk, agent, screen)
        if agent.asks and not options:
            screen.sees(agent.asks)
            screen.presses(agent.yes, made.exists, 10)
        screen.sees(agent.said)
        screen.ends("\x03")
    assert made.read_text() == MADE


def sends(desk: Desk, agent: Agent, screen: Screen) -> None:
    """Presses Enter until the prompt has arrived at the API."""
    before = len(desk.world.prompts(agent.host))
    screen.presses("\r", lambda: len(desk.world.prompts(agent.host)) > before, 10)


def installed(desk: Desk, name: str) -> Agent:
    """The agent of that name, on the person's PATH."""
    agent = next(one for one in AGENTS if one.name == name)
    if agent.directory is None:
        pytest.skip(f"{name} is not installed: make agents")
    desk.env["PATH"] = f"{agent.directory}:{desk.env['PATH']}"
    return agent


def test_claude_works_with_a_subscription_whose_tokens_stay_outside(desk: Desk) -> None:
    agent = installed(desk, "claude")
    made = desk.project / "made.txt"
    desk.world.answer, desk.world.api = agent.answer(made), agent.host
    access = "sk-ant-oat01-thisIsTheRealAccessTokenOfThePerson0123456789abcdef-AA"
    refresh = "sk-ant-ort01-thisIsTheRealRefreshTokenOfThePerson0123456789abcde-AA"
    login = {"accessToken": access, "refreshToken": refresh, "expiresAt": 4102444800000, "subscriptionType": "max"}
    whole = {"claudeAiOauth": {**login, "scopes": ["user:inference", "user:profile"]}}
    settings = {"theme": "light", "history": ["what I asked"], "oauthAccount": {"emailAddress": "me@example.com"}}
    desk.has({".claude/.credentials.json": json.dumps(whole), ".claude.json": json.dumps(settings)})
    with desk.screen("claude", "--trust") as screen:
        screen.sees("bypass permissions on")  # the flag took hold, and no question came before
        screen.types("please write the file")
        screen.sees("please write the file")
        sends(desk, agent, screen)
        screen.sees(SAID)
        screen.ends("\x03")
        assert "Do you want" not in screen.drawn
    assert made.read_text() == MADE
    assert ("authorization", f"Bearer {access}") in [
        pair for one in desk.world.sent(agent.host) for pair in one["headers"]
    ]
    kept = desk.kept("claude")
    inside = json.loads((kept / ".claude/.credentials.json").read_text())["claudeAiOauth"]
    assert inside["accessToken"].startswith("sk-ant-oat01-")
    for file in (one for one in kept.rglob("*") if one.is_file()):
        content = file.read_bytes()
        assert access.encode() not in content, file
        assert refresh.encode() not in content, file
        assert b"what I asked" not in content, file
    assert json.loads((desk.home / ".claude/.credentials.json").read_text()) == whole


def test_claude_asks_nothing_in_the_second_run_and_remembers_the_first(desk: Desk) -> None:
    agent = installed(desk, "claude")
    desk.world.answer, desk.world.api = agent.answer(desk.project / "made.txt"), agent.host
    desk.env |= {agent.variable: agent.key}
    for _ in range(2):
        with desk.screen("claude") as screen:
            screen.sees(*agent.ready)
            assert "Do you" not in screen.drawn
            screen.ends("\x03")
    done = desk.run("claude", "--overlay", "--trust", "-p", "please write the file")
    assert SAID in done.stdout, done.stderr
    assert not (desk.project / "made.txt").exists()
    assert "sandbox diff" in done.stderr
    assert list((desk.kept("claude") / ".claude/projects").rglob("*.jsonl"))
    assert desk.run("claude", "--version").stdout.strip().endswith("(Claude Code)")


def test_do_not_ask_again_holds_in_the_next_run_and_is_not_in_the_project(desk: Desk) -> None:
    agent = installed(desk, "claude")
    command = {"command": "mktemp -p . made.XXXXXX", "description": "make a file"}
    desk.world.answer, desk.world.api = apis.anthropic("Bash", command), agent.host
    desk.env |= {agent.variable: agent.key}
    for run in range(2):
        with desk.screen("claude") as screen:
            screen.sees(*agent.ready)
            screen.types("please make it")
            screen.sees("please make it")
            sends(desk, agent, screen)
            if run == 0:
                screen.sees("don't ask again", "don’t ask again")
                screen.presses("2", lambda: any(desk.project.glob("made.*")), 10)
            screen.sees(SAID)
            assert run == 0 or "ask again" not in screen.drawn
            screen.ends("\x03")
        assert len(list(desk.project.glob("made.*"))) == run + 1
    kept = desk.kept("claude").parent / "project-state/.claude/upper/settings.local.json"
    assert "mktemp" in kept.read_text()
    assert not (desk.project / ".claude").exists()


def test_codex_has_nothing_to_warn_of(desk: Desk) -> None:
    agent = installed(desk, "codex")
    desk.world.answer, desk.world.api = agent.answer(desk.project / "made.txt"), agent.host
    desk.env |= {agent.variable: agent.key}
    with desk.screen("codex", "--trust") as screen:
        screen.sees(*agent.ready)
        screen.types("\x1bOQ")  # F2: its warnings
        screen.sees("No warnings")
        screen.ends("\x03")


def test_the_first_screen_of_amp_comes_up(desk: Desk) -> None:
    with_amp(desk)
    desk.world.api = "nobody"
    with desk.screen("amp") as screen:
        screen.sees("log in to Amp")
        screen.ends("\x03")
    assert desk.run("amp", "--version").returncode == 0


def test_amp_sends_the_key_that_it_never_holds(desk: Desk) -> None:
    with_amp(desk)
    key = f"sgamp_user_01ABCDEFGHJKMNPQRSTVWXYZ01_{'0123456789abcdef' * 4}"
    desk.world.answer = lambda *_: (404, [], b"{}")
    desk.env |= {"AMP_API_KEY": key}
    assert desk.run("amp", "-x", "hello", stdin=subprocess.DEVNULL).returncode != 0  # its service does not answer
    sent = desk.world.sent("ampcode.com")
    assert sent and any(value == f"Bearer {key}" for one in sent for _, value in one["headers"])
    inside = desk.run("run", "--profile", "amp", "--", "env")
    assert "AMP_API_KEY=sgamp_user_" in inside.stdout, inside.stderr
    assert key not in inside.stdout
    kept = [one for one in desk.kept("amp").rglob("*") if one.is_file() and not one.is_symlink()]
    assert not [one for one in kept if key.encode() in one.read_bytes()]


def with_amp(desk: Desk) -> None:
    """Puts amp, for whose service we have no mock, on the person's PATH."""
    directory = WHERE / "amp" / "node_modules" / ".bin"
    if not (directory / "amp").exists():
        pytest.skip("amp is not installed: make agents")
    desk.env["PATH"] = f"{directory}:{desk.env['PATH']}"
