"""Ctrl-Z at a terminal: the shell that started `sandbox run` gets its prompt back, and `fg` goes on. Closed windows."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandboxes import program

pytestmark = pytest.mark.walls


class Shell:
    """An interactive bash, with job control, on a terminal."""

    def __init__(self, cwd: Path) -> None:
        self._master, theirs = pty.openpty()
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"],
            cwd=cwd,
            env={**os.environ, "PS1": "<prompt>", "TERM": "dumb", "HISTFILE": ""},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.seen = ""
        self.sees("<prompt>")

    def types(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def sees(self, text: str) -> str:
        """Waits for `text`, which was not seen before; what came up to it."""
        while text not in self.seen:
            self.seen += os.read(self._master, 65536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def close_window(self) -> None:
        """The kernel hangs up whoever is on the terminal."""
        os.close(self._master)
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def sandboxed(*words: str) -> str:
    return shlex.join([*program(), "run", "--", *words]) + "\n"


def test_ctrl_z_gives_the_shell_its_prompt_and_fg_continues(shell: Shell) -> None:
    shell.types(sandboxed("cat"))
    shell.types("first\n")
    shell.sees("first\r\nfirst\r\n")
    shell.types("\x1a")
    shell.sees("Stopped")
    shell.sees("<prompt>")
    shell.types("echo shell-$((40 + 2))\n")  # the terminal is the shell's again, and echoes
    shell.sees("shell-42")
    shell.types("fg\n")
    shell.sees("\n")
    shell.types("second\n")
    shell.sees("second\r\nsecond\r\n")
    shell.types("\x04")
    shell.sees("<prompt>")
    shell.types("echo status-$?\n")
    shell.sees("status-0")


def test_a_program_that_stops_itself_as_editors_do_is_resumed_by_fg(shell: Shell) -> None:
    script = "import os, signal; print('up', flush=True); os.kill(0, signal.SIGTSTP); print('again', flush=True)"
    shell.types(sandboxed("python3", "-c", script))
    shell.sees("up\r\n")
    shell.sees("Stopped")
    shell.types("fg\n")
    shell.sees("again\r\n")
    shell.sees("<prompt>")


def test_a_shell_inside_keeps_its_own_jobs(shell: Shell) -> None:
    shell.types(sandboxed("bash", "--norc", "--noprofile", "-i"))
    shell.types("PS1='<in''side>'\n")
    shell.sees("<inside>")
    shell.types("sh -c 'echo up; exec cat'\n")
    shell.sees("up\r\n")
    shell.types("\x1a")
    shell.sees("Stopped")
    shell.sees("<inside>")
    shell.types("exit\nexit\n")
    shell.sees("<prompt>")


def test_a_signal_that_ends_a_command_on_a_terminal_is_reported(shell: Shell) -> None:
    shell.types(sandboxed("sh", "-c", "kill -TERM $$"))
    shell.sees("<prompt>")
    shell.types("echo status-$?\n")
    shell.sees("status-143")


def test_a_stopped_command_without_a_shell_to_resume_it_continues(tmp_path: Path) -> None:
    from tests.cli.person import Person

    script = "import os, signal; os.kill(0, signal.SIGTSTP); print('went on')"
    with Person("run", "--", "python3", "-c", script, cwd=tmp_path) as person:
        assert person.status() == 0
        assert "went on" in person.seen


def test_a_command_in_the_background_runs_and_leaves_the_terminal_to_the_shell(shell: Shell) -> None:
    script = "read line; until [ -e go ]; do sleep 0.05; done; echo went-$((40 + 2))"
    shell.types(f"{sandboxed('sh', '-c', script).strip()} &\n")
    shell.sees("<prompt>")
    shell.types("echo typed-$((40 + 1)); touch go\n")
    shell.sees("typed-41")
    shell.sees("went-42")
    shell.types("wait; echo status-$?\n")
    shell.sees("status-0")


def test_a_command_under_timeout_runs_on_a_terminal(shell: Shell) -> None:
    # `timeout` in a script puts what it runs into the background.
    shell.types(shlex.join(["sh", "-c", "timeout 60 " + sandboxed("echo", "under") + "echo status-$?"]) + "\n")
    shell.sees("under\r\nstatus-0")


def test_exec_in_the_background_runs_too(shell: Shell) -> None:
    shell.types(f"id=$({shlex.join([*program(), 'run', '-d', '--', 'sleep', '1000'])})\n")
    shell.sees("<prompt>")
    shell.types(f"{shlex.join([*program(), 'exec'])} $id -- sh -c 'read line; echo went-$((40 + 2))' &\n")
    shell.sees("went-42")
    shell.types(f"wait; {shlex.join([*program(), 'kill'])} $id; echo status-$?\n")
    shell.sees("status-0")


def test_closing_the_window_leaves_nothing_in_the_project(home: Path) -> None:
    project = Path.cwd()
    shell = Shell(project)
    words = ("run", "--profile", "claude", "--", "sh", "-c", "echo up-$((40 + 2)); exec sleep 1000")
    shell.types(shlex.join([*program(), *words]) + "\n")
    shell.sees("up-42")
    assert os.listdir(project), "names that it reserves"
    (entry,) = (home / "vms").iterdir()
    owner = os.pidfd_open(int((entry / "pid").read_text().split()[0]))
    shell.close_window()
    assert select.select([owner], [], [], 60)[0], "its end makes it readable"
    os.close(owner)
    assert os.listdir(project) == []
    assert (entry / "status").read_text().strip() == "stopped"
