"""list, get, exec, attach, logs, kill, rm, prune and `run --detach`, as a person uses them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import get_vm
from sandbox.registry import remove
from tests.cli.person import Person
from tests.sandboxes import Command, program

pytestmark = pytest.mark.walls


@pytest.fixture
def detached(cli: Command) -> str:
    """The id of a sandbox that runs in the background until it is killed."""
    done = cli("run", "--detach", "--", "sh", "-c", "echo up; exec sleep 1000")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_detached_sandbox_prints_its_id_and_lives_on(cli: Command, detached: str) -> None:
    assert re.fullmatch("vm-[0-9a-f]{8}", detached)
    heading, row = cli("list").stdout.splitlines()
    assert heading == "ID           STATUS    IMAGE      CREATED         PID     COMMAND"
    assert row.startswith(f"{detached}  running   -          ")
    assert row.endswith("sh -c 'echo up; exec sleep 1000'")


def test_a_detached_sandbox_that_cannot_start_says_why_in_front(cli: Command) -> None:
    done = cli("run", "--detach", "--root", "/no/such/project", "--", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert "/no/such/project" in done.stderr
    assert json.loads(cli("list", "--json").stdout) == []


def test_a_missing_command_in_front_is_an_error_too(cli: Command) -> None:
    done = cli("run", "--detach", "--", "no-such-command")
    assert (done.returncode, done.stdout) == (127, "")
    assert "no-such-command" in done.stderr


def test_list_can_be_limited_to_those_that_run(cli: Command, detached: str) -> None:
    cli("run", "--", "true")
    assert {entry["status"] for entry in json.loads(cli("list", "--json").stdout)} == {"stopped", "running"}
    assert [entry["id"] for entry in json.loads(cli("list", "--running", "--json").stdout)] == [detached]


def test_get_shows_what_it_was_asked_to_be(cli: Command, detached: str) -> None:
    shown = json.loads(cli("get", detached[:6]).stdout)
    assert (shown["id"], shown["status"]) == (detached, "running")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", shown["created_at"])
    assert shown["config"]["network"]["allowed_hosts"] == []


def test_logs_are_what_it_printed(cli: Command) -> None:
    id = cli("run", "--detach", "--", "sh", "-c", "echo one; echo two >&2; exit 3").stdout.strip()
    assert cli("logs", "--follow", id).stdout == "one\ntwo\n"


def test_logs_on_a_terminal_show_escape_sequences_instead_of_obeying_them(cli: Command) -> None:
    id = cli("run", "-d", "--", "printf", r"\033]0;owned\007\n").stdout.strip()
    cli("logs", "--follow", id)
    with Person("logs", id) as person:
        assert person.sees("owned")
        assert person.status() == 0
        assert "\x1b" not in person.seen
        assert r"\x1b]0;owned\x07" in person.seen


def test_exec_runs_a_further_command_with_our_streams(cli: Command, detached: str) -> None:
    done = cli(
        "exec", "--env", "A=b", detached, "--", "sh", "-c", 'echo "$A"; cat; echo err >&2; exit 9', input="given\n"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("b\ngiven\n", "err\n", 9)


def test_exec_says_what_a_shell_says_of_a_command_that_does_not_exist(cli: Command, detached: str) -> None:
    done = cli("exec", detached, "--", "no-such-program")
    assert done.returncode == 127
    assert "no such command" in done.stderr


def test_exec_at_a_terminal_gives_the_command_one(detached: str) -> None:
    with Person("exec", detached, "--", "sh", "-c", "test -t 0 && test -t 1 && echo it is one") as person:
        assert person.sees("it is one")
        assert person.status() == 0


def test_one_can_leave_a_shell_and_come_back_to_it(detached: str) -> None:
    with Person("attach", detached) as person:
        person.types("KEPT=yes; echo is-$KEPT\n")
        assert person.sees("is-yes")
        person.types("\x10\x11")  # Ctrl-P Ctrl-Q
        assert person.sees("detached; `sandbox attach`")
        assert person.status() == 0
    with Person("attach", detached) as person:
        person.types("echo still-$KEPT; exit 4\n")
        assert person.sees("still-yes")
        assert person.status() == 4


def test_attach_without_a_terminal_says_what_to_use_instead(cli: Command, detached: str) -> None:
    assert "sandbox exec" in cli("attach", detached).stderr


def test_kill_ends_it_and_everything_in_it(cli: Command, detached: str) -> None:
    assert cli("kill", detached).stdout == f"{detached}\n"
    (entry,) = json.loads(cli("list", "--json").stdout)
    assert (entry["status"], entry["pid"]) == ("stopped", None)
    again = cli("kill", detached)
    assert again.returncode == 125
    assert "not running" in again.stderr


def test_kill_leaves_the_project_as_an_end_of_its_own_would(cli: Command) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    plant = "mkdir .git/rebase-merge; echo exec id > .git/rebase-merge/git-rebase-todo; echo; exec sleep 1000"
    id = cli("run", "--detach", "--", "sh", "-c", plant).stdout.strip()
    log = subprocess.Popen([*program(), "logs", "--follow", id], stdout=subprocess.PIPE)
    assert log.stdout is not None
    log.stdout.readline()
    cli("kill", id)
    log.communicate()
    assert "exec" not in Path(".git/rebase-merge/git-rebase-todo").read_text()
    assert os.listdir() == [".git"]  # no empty `.vscode` stays behind
    assert "stopped" in cli("audit", "--sandbox", id).stdout


def test_kill_all_ends_all(cli: Command, detached: str) -> None:
    second = cli("run", "-d", "--", "sleep", "1000").stdout.strip()
    assert sorted(cli("kill", "--all").stdout.split()) == sorted([detached, second])
    assert json.loads(cli("list", "--running", "--json").stdout) == []


def test_kill_works_on_an_owner_that_hangs(cli: Command, detached: str) -> None:
    pid = json.loads(cli("get", detached).stdout)["pid"]
    os.kill(pid, signal.SIGSTOP)
    remove.kill(get_vm(detached), patience=0.2)
    assert json.loads(cli("get", detached).stdout)["status"] == "stopped"


def test_rm_takes_stopped_ones_only(cli: Command, detached: str) -> None:
    assert "kill" in cli("rm", detached).stderr
    cli("run", "--", "true")
    cli("rm", "--stopped")
    assert [entry["id"] for entry in json.loads(cli("list", "--json").stdout)] == [detached]
    cli("kill", detached)
    cli("rm", detached)
    assert json.loads(cli("list", "--json").stdout) == []


def test_prune_leaves_the_running_ones(cli: Command, detached: str) -> None:
    cli("run", "--", "true")
    assert len(cli("prune").stdout.split()) == 1
    assert [entry["id"] for entry in json.loads(cli("list", "--json").stdout)] == [detached]


def test_changes_that_were_all_applied_are_not_kept(cli: Command, home: Path) -> None:
    done = cli("run", "--overlay", "--", "sh", "-c", "echo new > made-inside")
    id = re.findall(r"vm-\w+", done.stderr)[0]
    assert cli("apply", id).stdout == "A made-inside (4 bytes)\n"
    assert id in cli("prune").stdout


def test_changes_of_a_running_sandbox_are_not_thrown_away(cli: Command) -> None:
    id = cli("run", "--detach", "--overlay", "--", "sleep", "1000").stdout.strip()
    done = cli("discard", id)
    assert (done.returncode, done.stderr) == (125, f"sandbox: {id} is running; stop it first: `sandbox kill {id}`\n")


def test_an_option_after_the_id_is_an_error(cli: Command, detached: str) -> None:
    assert "put options before it" in cli("exec", detached, "--env", "A=1", "--", "true").stderr


def test_an_own_command_runs_under_the_policy_baked_into_it(home: Path) -> None:
    script = (
        "import sys; from sandbox.cli import run_with_config; "
        "sys.exit(run_with_config({'limits': {'timeout': '200ms'}}, ['run', 'sleep', '1000']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 124, done.stderr


def test_a_configuration_from_a_descriptor_is_in_no_argument_list(cli: Command) -> None:
    read, write = os.pipe()
    os.write(write, b'{"env": {"GREETING": "hello"}}')
    os.close(write)
    done = cli("--config-fd", str(read), "run", "--", "sh", "-c", "echo $GREETING", pass_fds=(read,))
    os.close(read)
    assert done.stdout == "hello\n", done.stderr


def test_a_configuration_on_standard_input_leaves_the_command_an_empty_one(cli: Command) -> None:
    """The number of the closed descriptor went to the next file that the owner opened, and that to the command."""
    done = cli("--config-fd", "0", "run", "--", "sh", "-c", "readlink /proc/self/fd/0; cat; echo ok", input="{}")
    assert (done.stdout, done.stderr) == ("/dev/null\nok\n", "")


@pytest.mark.parametrize(("descriptor", "given"), [("-1", ""), ("99", ""), ("0", "[" * 100_000), ("0", "\xff{")])
def test_a_configuration_that_cannot_be_read_is_one_line(cli: Command, descriptor: str, given: str) -> None:
    done = cli("--config-fd", descriptor, "run", "true", input=given)
    assert (done.returncode, done.stderr.count("\n")) == (125, 1), done.stderr


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-"])
def test_a_sandbox_detaches_whatever_stream_is_closed(cli: Command, closed: str) -> None:
    started = shlex.join([*program(), "run", "--detach", "--", "sleep", "1000"])
    done = subprocess.run(["sh", "-c", f"{started} {closed}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [entry["status"] for entry in json.loads(cli("list", "--json").stdout)] == ["running"]
    cli("kill", "--all")


def test_the_shell_completes_commands_options_actions_and_ids(cli: Command, detached: str) -> None:
    script = cli("completion", "bash").stdout
    ours = " ".join(program())
    ask = """
        sandbox() { %s "$@"; }
        eval "$1"
        shift
        COMP_WORDS=(sandbox "$@"); COMP_CWORD=$#
        _sandbox
        echo "${COMPREPLY[@]}"
    """
    for words, expected in (
        (["disc"], "discard"),
        (["run", "--allow"], "--allow-host"),
        (["config", "sc"], "schema"),
        (["kill", detached[:6]], detached),
    ):
        done = subprocess.run(
            ["bash", "-c", ask % ours, "bash", script, *words], capture_output=True, text=True, check=False
        )
        assert done.stdout.strip() == expected, done.stderr


def test_logs_on_a_terminal_show_direction_controls_as_diff_does(cli: Command) -> None:
    text = "a\u202egnp.exe\u2066 b\u200b"
    id = cli("run", "-d", "--", "printf", "%s\\n", text).stdout.strip()
    cli("logs", "--follow", id)
    with Person("logs", id) as person:
        assert person.status() == 0
        assert r"a\u202egnp.exe\u2066 b\u200b" in person.seen
        assert "\u202e" not in person.seen


def test_apply_at_a_terminal_asks_and_says_how_many_were_applied(cli: Command) -> None:
    cli("run", "--overlay", "--", "sh", "-c", "echo x > made-here")
    with Person("apply") as person:
        person.sees("Apply these changes")
        person.types("y\n")
        assert person.sees("applied: 1")
        assert person.status() == 0
        assert person.seen.count("A made-here") == 1


def test_list_shows_a_script_of_several_lines_as_one_readable_line(cli: Command) -> None:
    cli("run", "--", "sh", "-c", "\necho one\n\n  echo 'two'\x1b[31m\n")
    _heading, row = cli("list").stdout.splitlines()
    assert row.endswith(r"sh -c 'echo one; echo '\''two'\''\x1b[31m'")


def test_diff_apply_and_discard_without_an_id_mean_this_projects_last_overlay(cli: Command, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for text in ("first", "second"):
        cli("run", "--overlay", "--", "sh", "-c", f"echo {text} > file")
    cli("run", "--overlay", "--", "sh", "-c", "echo elsewhere > file", cwd=other)
    assert "+second" in cli("diff").stdout
    assert cli("apply").stdout == "A file (7 bytes)\n"
    assert Path("file").read_text() == "second\n"
    assert "elsewhere" in cli("diff", cwd=other).stdout
    assert cli("discard").returncode == 0  # the first one
    nothing = cli("discard")
    assert (nothing.returncode, "keeps changes" in nothing.stderr) == (125, True)
    assert cli("discard", cwd=other).returncode == 0


def test_apply_without_an_id_takes_paths(cli: Command) -> None:
    cli("run", "--overlay", "--", "sh", "-c", "mkdir src; echo a > src/a; echo b > b")
    assert cli("apply", "src").returncode == 0
    assert (Path("src/a").exists(), Path("b").exists()) == (True, False)


def test_apply_on_a_terminal_shows_what_it_will_do_and_asks(cli: Command) -> None:
    cli("run", "--overlay", "--", "sh", "-c", "echo inside > made")
    with Person("apply") as person:
        assert person.sees("[y/N]")
        assert "A made (7 bytes)" in person.seen
        assert not Path("made").exists()
        person.types("n\n")
        assert person.status() == 125
    assert not Path("made").exists()
    with Person("apply") as person:
        assert person.sees("[y/N]")
        person.types("y\n")
        assert person.status() == 0
    assert Path("made").read_text() == "inside\n"


def test_apply_with_yes_asks_nothing(cli: Command) -> None:
    cli("run", "--overlay", "--", "sh", "-c", "echo inside > made")
    with Person("apply", "--yes") as person:
        assert person.status() == 0
        assert "[y/N]" not in person.seen
    assert Path("made").exists()


def test_apply_carries_nothing_over_that_was_not_shown(cli: Command) -> None:
    id = cli("run", "-d", "--overlay", "--", "sh", "-c", "echo shown > made; echo up; exec sleep 1000").stdout.strip()
    while cli("logs", id).stdout != "up\n":
        pass
    with Person("apply") as person:
        assert person.sees("[y/N]")
        cli("exec", id, "--", "sh", "-c", "echo hidden > made")
        person.types("y\n")
        assert person.status() == 125
        assert "try again" in person.seen
    assert not Path("made").exists()
