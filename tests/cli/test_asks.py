"""`sandbox run --ask`, `sandbox asks`, `sandbox allow`, `sandbox deny`: a person at terminals, a real sandbox."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import yaml

from tests.cli.person import Person
from tests.network.room import Origin, origin
from tests.sandboxes import Command, program

pytestmark = pytest.mark.walls

__all__ = ["origin"]

PROMPT = "[o]nce, for this [s]andbox, [a]lways, or [d]eny? "


@pytest.fixture
def url(home: Path, origin: Origin) -> str:
    """A host that is not listed. Its name leads to a proxy, since only the person's own config can lead it anywhere."""
    home.mkdir(exist_ok=True)
    settings = {"network": {"upstream_proxy": f"http://127.0.0.1:{origin.port}", "ask_timeout": "10m"}}
    (home / "config.yaml").write_text(yaml.safe_dump(settings))
    return "http://good.test/x"


def hosts(home: Path) -> list[str]:
    settings = yaml.safe_load((home / "config.yaml").read_text())
    found: list[str] = settings["network"].get("allowed_hosts", [])
    return found


# Allowed means here: the gate tried, and the stand-in for a proxy refused. Denied never gets there.
TRIED, REFUSED = "the upstream proxy refused good.test:80", "Blocked by the sandbox: good.test:80"


# -- the terminal


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("o", TRIED),
        ("once", TRIED),
        ("s", TRIED),
        ("a", TRIED),
        ("d", "its owner was asked and denied it"),
        ("deny", "its owner was asked and denied it"),
    ],
)
def test_the_person_answers_on_the_terminal(home: Path, url: str, typed: str, seen: str) -> None:
    with Person("run", "--ask", "--", "sh", "-c", f"curl -sS {url}; echo; echo done") as person:
        person.sees("sandbox: 'curl' wants to connect to good.test:80: GET /x\r\n" + PROMPT)
        person.types(f"{typed}\r")
        person.sees("done")
        person.status()
        assert seen in person.seen
        assert (TRIED in person.seen) == (seen == TRIED)
    assert hosts(home) == (["good.test:80"] if typed == "a" else [])


def test_after_always_nobody_is_asked_again(home: Path, url: str) -> None:
    command = ("run", "--ask", "--", "sh", "-c", f"curl -sS {url}; echo; echo done")
    with Person(*command) as person:
        person.sees(PROMPT)
        person.types("always\r")
        assert person.status() == 0 and TRIED in person.seen
    assert hosts(home) == ["good.test:80"]
    with Person(*command) as person:
        assert person.status() == 0 and TRIED in person.seen and PROMPT not in person.seen


def test_control_c_denies_and_interrupts_the_command(cli: Command, url: str) -> None:
    with Person("run", "--ask", "--", "sh", "-c", f"curl -sS {url}; echo done") as person:
        person.sees(PROMPT)
        person.types("\x03")
        assert person.status() == 130 and "done" not in person.seen
    assert '"ask: deny"' in cli("audit", "--json").stdout


def test_only_an_answer_is_an_answer(url: str) -> None:
    with Person("run", "--ask", "--", "curl", "-sS", url) as person:
        for nonsense in ("y\r", "yes\r", "\r", "O K\r", "\x1b[A\r", "sd\x7f\x7f\r"):
            person.sees(PROMPT)
            person.seen = ""
            person.types(nonsense)
        person.sees(PROMPT)
        person.types("d\r")
        person.sees("denied it")


def test_keys_typed_before_the_question_are_the_programs(url: str) -> None:
    # The program reads a line first: that it was typed ahead makes it no answer.
    script = f"read line; curl -sS {url}; echo; echo got $line"
    with Person("run", "--ask", "--", "sh", "-c", script, typed="once\n") as person:
        person.sees(PROMPT)
        person.types("d\r")
        person.sees("got once")
        assert "denied it" in person.seen


def test_what_the_program_prints_meanwhile_comes_after_the_answer(url: str) -> None:
    forge = "while ! [ -e /tmp/over ]; do printf '\\033[2J\\033[Hforged'; done"
    script = f"(curl -sS {url}; touch /tmp/over) & {forge}; wait; echo; echo done"
    with Person("run", "--ask", "--", "sh", "-c", script) as person:
        person.sees(PROMPT)
        person.types("d")
        person.sees(f"{PROMPT}d")
        assert "forged" not in person.seen.partition(PROMPT)[2]
        person.types("\r")
        person.sees("done")
        assert "forged" in person.seen


@pytest.mark.parametrize("mode", ["stty raw -echo", "stty -icanon", "stty -echo", "printf '\\033[?1049h'"])
def test_a_program_that_has_the_terminal_to_itself_is_not_disturbed(url: str, mode: str) -> None:
    script = f"{mode}; curl -sS {url}; stty sane; echo; echo done"
    with Person("run", "--ask", "--", "sh", "-c", script) as person:
        person.sees("questions appear here; while a program uses the whole screen")
        person.sees("done")
        person.status()
        assert PROMPT not in person.seen and "nobody was there to answer" in person.seen


def test_a_question_that_is_answered_elsewhere_goes_away(home: Path, cli: Command, url: str) -> None:
    with Person("run", "--ask", "--", "sh", "-c", f"curl -sS {url}; echo; echo done") as person:
        person.sees(PROMPT)
        (ask,) = json.loads(cli("asks", "--json").stdout)
        assert cli("deny", str(ask["id"])).returncode == 0
        person.sees("answered elsewhere")
        person.sees("done")
        assert "denied it" in person.seen


def test_with_output_in_a_pipe_the_question_is_on_the_terminal(url: str) -> None:
    """As a person types `sandbox run --ask -- curl … | cat` in a shell: a session with a terminal of its own."""
    pid, terminal = pty.fork()
    if pid == 0:
        words = [*program(), "run", "--ask", "--", "curl", "-sS", url]
        quoted = " ".join(f"'{word}'" for word in words)
        os.execvp("sh", ["sh", "-c", f"{quoted} < /dev/null | cat; echo; echo done"])
    seen = ""
    try:
        while "done" not in seen:
            seen += os.read(terminal, 65536).decode(errors="replace")
            if PROMPT in seen and "d\r\n" not in seen.partition(PROMPT)[2]:
                os.write(terminal, b"d\r")
                seen = seen.replace(PROMPT, "asked ") + "d\r\n"
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    assert "asked " in seen and "denied it" in seen


# -- another terminal


class Watching:
    """`sandbox asks --follow --json` in another terminal."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([*program(), "asks", "--follow", "--json"], stdout=subprocess.PIPE, text=True)
        self._lines: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def next(self, state: str) -> dict[str, Any]:
        """The next event of that kind; after a minute without any, queue.Empty."""
        while True:
            event: dict[str, Any] = json.loads(self._lines.get(timeout=60))
            if event["state"] == state:
                return event

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def watching(home: Path) -> Iterator[Watching]:
    from sandbox.asks.stored_answers import watched

    one = Watching()
    while not watched():  # it starts in its own time
        assert one.process.poll() is None
    yield one
    one.close()


@pytest.mark.parametrize(
    ("words", "answer", "allowed"),
    [
        (["allow"], "sandbox", True),
        (["allow", "--once"], "once", True),
        (["allow", "--always"], "always", True),
        (["deny"], "deny", False),
    ],
)
def test_sandbox_asks_shows_a_question_and_allow_or_deny_answers_it(
    home: Path, cli: Command, url: str, watching: Watching, words: list[str], answer: str, allowed: bool
) -> None:
    command = [*program(), "run", "--ask", "--", "curl", "-sS", url]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as run:
        ask = watching.next("waiting")
        assert (ask["host"], ask["port"], ask["program"], ask["path"]) == ("good.test", 80, "curl", "/x")
        listed = json.loads(cli("asks", "--json").stdout)
        assert [one["id"] for one in listed] == [ask["id"]]
        assert "'curl' wants to connect to good.test:80: GET /x" in cli("asks").stdout
        done = cli(*words, str(ask["id"]))
        did = {"once": "allowed once", "sandbox": "allowed for this sandbox", "always": "allowed from now on"}
        assert done.returncode == 0 and "good.test:80" in done.stdout
        assert done.stdout.startswith(f"{did.get(answer, 'denied')}: ")
        told = watching.next("allowed" if allowed else "denied")
        assert (told["answer"], told["by"]) == (answer, f"control socket (sandbox {words[0]})")
        output, _ = run.communicate()
    assert (TRIED if allowed else REFUSED) in output
    assert hosts(home) == (["good.test:80"] if answer == "always" else [])
    again = cli("allow", str(ask["id"]))
    assert again.returncode != 0 and f"no question {ask['id']} is waiting" in again.stderr
    audit = cli("audit", "--json").stdout
    assert f"ask: {answer}" in audit and f"control socket (sandbox {words[0]})" in audit


def test_a_sandbox_in_the_background_asks_too(cli: Command, url: str, watching: Watching) -> None:
    id = cli("run", "--detach", "--ask", "--", "sh", "-c", f"curl -sS {url}").stdout.strip()
    ask = watching.next("waiting")
    assert ask["sandbox"] == id
    assert cli("deny", str(ask["id"])).returncode == 0


def test_without_anybody_the_run_says_so(cli: Command, url: str) -> None:
    done = cli("run", "--ask", "--", "curl", "-sSf", url, stdin=subprocess.DEVNULL, start_new_session=True)
    assert "nobody was there to answer; `sandbox asks` in another terminal shows such questions" in done.stderr


def test_sandbox_asks_on_a_terminal_is_a_live_list(cli: Command, url: str) -> None:
    with Person("asks") as person:
        person.sees("waiting for questions")
        command = [*program(), "run", "--ask", "--", "curl", "-sS", url]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as run:
            person.sees("'curl' wants to connect to good.test:80: GET /x")
            (ask,) = json.loads(cli("asks", "--json").stdout)
            cli("deny", str(ask["id"]))
            person.sees("denied (deny, control socket (sandbox deny))")
            run.wait()


def test_nothing_asks(cli: Command) -> None:
    assert cli("asks").stdout == "" and json.loads(cli("asks", "--json").stdout) == []
    assert "no question 1 is waiting" in cli("allow", "1").stderr


# -- why, and the project's own file


def test_why_says_that_you_would_be_asked(cli: Command, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("network: {ask: true, denied_hosts: [bad.test]}\n")
    assert "asked    network.ask is set" in cli("why", "--host", "good.test").stdout
    assert json.loads(cli("why", "--host", "good.test", "--json").stdout)["asks"] is True
    assert "asked" not in cli("why", "--host", "bad.test").stdout
    assert json.loads(cli("why", "--host", "10.0.0.1", "--json").stdout)["asks"] is False
    (home / "config.yaml").write_text("network: {ask: false}\n")
    assert "asked" not in cli("why", "--host", "good.test").stdout


def test_a_project_can_switch_asking_off_and_not_on(cli: Command, home: Path) -> None:
    Path(".sandbox").mkdir()
    Path(".sandbox/config.yaml").write_text("network: {ask: true, ask_timeout: 1h}\nfilesystem: {ask: true}\n")
    shown = json.loads(cli("config", "show", "--json").stdout)
    assert shown["settings"]["network.ask"]["value"] is False and len(shown["ignored"]) == 3
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("network: {ask: true}\n")
    Path(".sandbox/config.yaml").write_text("network: {ask: false, ask_timeout: 5s}\n")
    shown = json.loads(cli("config", "show", "--json").stdout)["settings"]
    assert shown["network.ask"]["value"] is False and shown["network.ask_timeout"]["value"] == 5


def test_a_run_that_does_not_ask_loads_nothing_of_it(home: Path) -> None:
    run = "from sandbox.cli.main import main; main(['run', '--', 'true'])"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", run],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    assert "sandbox.asks" not in done.stderr and "ask_terminal" not in done.stderr
