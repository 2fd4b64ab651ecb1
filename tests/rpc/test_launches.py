"""The launcher: to whoever starts it, it is the command, but the command is behind the walls."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox import Client, SandboxClosed
from sandbox.guest import cbor

pytestmark = pytest.mark.walls


class Warm:
    """A sandbox, and the launcher for it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        told = client._connection.call("launcher", {})
        self.program, self.socket = told["program"], told["socket"]
        self.notes = Path(told["notes"])

    def words(self, *command: str, label: str = "label") -> list[str]:
        return [self.program, self.socket, label, "--", *command]

    def run(self, *command: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.words(*command), capture_output=True, check=False, timeout=60, **more)

    def start(self, *command: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.words(*command), stdout=subprocess.PIPE, **more)


@pytest.fixture
def warm(rpc: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warm]:
    monkeypatch.setenv("HIDDEN_TOKEN", "t0ps3cret-value")
    with Client({"filesystem": {"root": str(tmp_path)}}, command=rpc) as client:
        yield Warm(client)


def test_output_and_status_are_the_commands_own(warm: Warm, tmp_path: Path) -> None:
    done = warm.run("sh", "-c", "echo out; echo err >&2; pwd; exit 7", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, f"out\n{tmp_path}\n".encode(), b"err\n")


def test_input_comes_from_a_pipe_a_file_a_socket_or_nowhere(warm: Warm, tmp_path: Path) -> None:
    large = os.urandom(300_000)
    assert warm.run("cat", input=large).stdout == large
    (tmp_path / "given").write_bytes(large)
    with open(tmp_path / "given", "rb") as file:
        assert warm.run("cat", stdin=file).stdout == large
    ours, theirs = socket.socketpair()
    with ours, theirs:
        started = warm.start("cat", stdin=theirs)
        theirs.close()
        ours.sendall(b"by socket")
        ours.shutdown(socket.SHUT_WR)
        assert started.communicate()[0] == b"by socket"
    assert warm.run("cat", stdin=subprocess.DEVNULL).stdout == b""


def test_lines_that_the_command_does_not_read_are_left_for_the_next(warm: Warm) -> None:
    launch = shlex.join(warm.words("sh", "-c", "read more; echo got $more"))
    loop = f"while read line; do {launch}; echo line $line; done"
    done = subprocess.run(["sh", "-c", loop], input=b"1\n2\n3\n4\n", capture_output=True, check=False)
    assert done.stdout == b"got 2\nline 1\ngot 4\nline 3\n"


def test_no_descriptor_of_the_callers_is_inside(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("x")
    with open(tmp_path / "given", "r+") as file:
        shown = subprocess.run(
            warm.words("sh", "-c", "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2"),
            stdin=file, stdout=subprocess.PIPE, stderr=file, check=False,
        ).stdout  # fmt: skip
    assert [line.split(b":")[0] for line in shown.split()] == [b"pipe", b"pipe", b"pipe"]


def test_output_and_errors_in_one_file_keep_their_order(warm: Warm) -> None:
    script = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done"
    done = subprocess.run(warm.words("sh", "-c", script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.stdout == b"".join(b"out %d\nerr %d\n" % (i, i) for i in range(1, 6))


def test_much_output_arrives_and_a_reader_that_leaves_is_noticed(warm: Warm) -> None:
    assert len(warm.run("head", "-c", "20000000", "/dev/zero").stdout) == 20_000_000
    endless = warm.start("sh", "-c", "trap '' PIPE; yes; echo ended >&2", stderr=subprocess.PIPE)
    assert endless.stdout is not None and endless.stdout.read(2) == b"y\n"
    endless.stdout.close()
    assert endless.stderr is not None and b"ended" in endless.stderr.read()
    endless.stderr.close()
    endless.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_both_the_command_and_the_launcher(warm: Warm, number: int) -> None:
    started = warm.start("sh", "-c", "echo up; exec sleep 1000")
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    started.send_signal(number)
    assert started.wait() == -number
    started.stdout.close()
    assert warm.client.processes() == []


def test_a_command_may_handle_a_signal(warm: Warm) -> None:
    started = warm.start("sh", "-c", "trap 'echo caught; exit 5' TERM; echo up; while :; do sleep 0.01; done")
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    started.send_signal(signal.SIGTERM)
    assert (started.stdout.read(), started.wait()) == (b"caught\n", 5)
    started.stdout.close()


def test_a_command_that_kills_itself_has_a_shells_status(warm: Warm) -> None:
    assert warm.run("sh", "-c", "kill -9 $$").returncode == 137


def test_a_launcher_that_is_killed_takes_its_command_along(warm: Warm) -> None:
    started = warm.start("sh", "-c", "echo up; sleep 1000")
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    started.kill()
    assert started.stdout.read() == b"", "nobody holds the pipe any more"
    started.wait()
    started.stdout.close()
    # The pipe is the launcher's own; the sandbox hears of its end a moment later.
    assert not warm.client.exec("while pgrep -fx 'sleep 1000'; do sleep 0.05; done", timeout=30).timed_out


def test_what_the_command_left_in_the_background_ends_with_it(warm: Warm) -> None:
    assert warm.run("sh", "-c", "sleep 1000 & echo done").stdout == b"done\n"
    assert warm.client.exec("pgrep -x sleep").stdout == ""


def test_variables_are_the_callers_less_what_the_rules_hold_back(warm: Warm) -> None:
    given = {**os.environ, "COLOUR": "blue", "GITHUB_TOKEN": "ghp_abcdefghijklmnopqrstuvwxyz0123456789"}
    del given["LANG" if "LANG" in given else "PATH"]
    inside = dict(line.split("=", 1) for line in warm.run("env", env=given).stdout.decode().splitlines() if "=" in line)
    assert inside["COLOUR"] == "blue"
    assert "GITHUB_TOKEN" not in inside and "HIDDEN_TOKEN" not in inside
    plain = warm.client.exec("env").stdout
    own = dict(line.split("=", 1) for line in plain.splitlines() if "=" in line)
    assert {name: inside.get(name) for name in ("HOME", "SSL_CERT_FILE")} == {
        name: own.get(name) for name in ("HOME", "SSL_CERT_FILE")
    }


def test_each_command_has_the_variables_and_the_directory_of_its_own_call(warm: Warm, tmp_path: Path) -> None:
    """Those of a command before it are kept, and must not come back."""
    (tmp_path / "sub").mkdir()
    for directory, colour in ((tmp_path, "red"), (tmp_path / "sub", "red"), (tmp_path, "blue"), (tmp_path, "red")):
        given = {"PATH": os.environ["PATH"], "COLOUR": colour}
        shown = warm.run("/bin/bash", "-c", "env", env=given, cwd=directory).stdout.decode().splitlines()
        assert f"COLOUR={colour}" in shown and f"PWD={directory}" in shown


def test_a_long_command_with_many_variables_arrives_whole(warm: Warm) -> None:
    given = {"PATH": os.environ["PATH"], **{f"VARIABLE_{number}": "v" * 1000 for number in range(200)}}
    long = ["a" * 100_000, "b" * 100_000, ""]
    script = 'echo $# ${#1} ${#2}; env | grep -c "^VARIABLE_.*=v\\{1000\\}$"'
    done = warm.run("sh", "-c", script, "sh", *long, env=given)
    assert done.stdout.split() == [b"3", b"100000", b"100000", b"200"]


def test_the_umask_and_the_directory_are_the_callers(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    done = subprocess.run(
        ["sh", "-c", f"umask 077; cd {tmp_path}/sub; {' '.join(warm.words('touch', 'made'))}"], check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "sub" / "made").stat().st_mode & 0o777 == 0o600


def test_a_directory_that_does_not_exist_inside_is_an_error(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = warm.run("true", cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode in (126, 127) and done.stderr.startswith(b"sandbox: ")


def test_a_command_that_does_not_exist_says_so(warm: Warm) -> None:
    done = warm.run("no-such-program")
    assert done.returncode == 127 and b"no-such-program" in done.stderr


def test_on_a_terminal_the_command_has_one_too(warm: Warm) -> None:
    pid, master = pty.fork()
    if pid == 0:
        os.execv(
            warm.program,
            warm.words("sh", "-c", "stty size; test -t 0 && test -t 1 && echo terminal; read x; echo got $x"),
        )
    shown = b""
    while b"terminal" not in shown:
        shown += os.read(master, 1024)
    os.write(master, b"typed\r")
    try:
        while data := os.read(master, 1024):
            shown += data
    except OSError:
        pass
    _, status = os.waitpid(pid, 0)
    os.close(master)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"got typed" in shown


def test_two_launchers_do_not_wait_for_each_other(warm: Warm) -> None:
    one = warm.start("cat", stdin=subprocess.PIPE)
    assert warm.run("echo", "two").stdout == b"two\n"
    assert one.communicate(b"one")[0] == b"one"


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1), (0, 1, 2)])
def test_closed_streams_are_empty_ones(warm: Warm, tmp_path: Path, closed: tuple[int, ...]) -> None:
    """A socket of the launcher's own had got the number, and `cat` waited for it forever."""
    close = "".join(f" {fd}>&-" for fd in closed)
    launch = shlex.join(warm.words("sh", "-c", "cat; echo out; echo err >&2; touch ran; exit 3"))
    done = subprocess.run(
        ["sh", "-c", f"exec {launch}{close}"], capture_output=True, check=False, timeout=60, cwd=tmp_path
    )
    assert (done.returncode, (tmp_path / "ran").exists()) == (3, True)
    assert done.stdout == (b"" if 1 in closed else b"out\n")
    assert done.stderr == (b"" if 2 in closed else b"err\n")


def test_a_signal_ends_a_launcher_whose_output_nobody_reads(warm: Warm) -> None:
    started = warm.start("head", "-c", "100000", "/dev/zero")
    while warm.client.processes() or not full(started):
        pass
    for _ in range(100):  # the first may still be passed on to the command, which has just ended
        started.terminate()
        try:
            assert started.wait(timeout=0.2) == -signal.SIGTERM
            break
        except subprocess.TimeoutExpired:
            pass
    assert started.returncode is not None
    assert started.stdout is not None
    started.stdout.close()


def full(started: subprocess.Popen[bytes]) -> bool:
    """Whether it has written as much as fits."""
    assert started.stdout is not None
    waiting = bytearray(4)
    fcntl.ioctl(started.stdout, termios.FIONREAD, waiting)
    return int.from_bytes(waiting, sys.byteorder) >= 65536


def test_a_launcher_lives_as_long_as_the_process_that_started_it_not_the_thread(warm: Warm) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.append(warm.start("sh", "-c", "echo up; read more; echo got $more", stdin=subprocess.PIPE))
        output = started[0].stdout
        assert output is not None and output.readline() == b"up\n"

    thread = Thread(target=start)
    thread.start()
    thread.join()
    assert started[0].communicate(b"more\n", timeout=60)[0] == b"got more\n"


def test_when_the_shell_that_started_it_is_killed_the_command_ends(warm: Warm) -> None:
    launch = shlex.join(warm.words("sh", "-c", "echo up; sleep 1000"))
    with subprocess.Popen(["sh", "-c", f"{launch}; true"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == b"up\n"
        shell.kill()
        assert shell.stdout.read() == b"", "nobody holds the pipe any more"


def test_a_command_whose_name_is_empty_or_not_text_is_an_error(warm: Warm) -> None:
    done = subprocess.run([*map(os.fsencode, warm.words()), b"/no\xff"], capture_output=True, check=False, timeout=60)
    assert (done.returncode, b"no such command" in done.stderr) == (127, True)
    assert (warm.run("").returncode, b"empty" in warm.run("").stderr) == (126, True)


def test_many_requests_without_sense_leave_room_for_others(warm: Warm, tmp_path: Path) -> None:
    """Each ended a thread: after as many as there may be, nobody answered any more."""
    launch = {"t": "launch", "label": b"x", "argv": [b"/no\xff"], "env": b"", "cwd": os.fsencode(tmp_path), "umask": 18}
    body = cbor.encode(launch)
    for _ in range(300):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60)
            line.connect(warm.socket)
            line.sendall(struct.pack("<I", len(body)) + body)
            line.recv(8)
    assert warm.run("echo", "alive").stdout == b"alive\n"


def test_an_event_names_the_label(warm: Warm) -> None:
    events: SimpleQueue[dict[str, Any]] = SimpleQueue()
    warm.client.on_event(events.put)
    subprocess.run(warm.words("true", label="my label"), check=True)
    # Events come in their own time: neither the command nor a later request waits for them.
    while (event := events.get(timeout=60))["type"] != "exec_start":
        pass
    assert event["exec_start"].get("label") == "my label"


def test_after_the_end_the_launcher_says_so(rpc: list[str], tmp_path: Path) -> None:
    with Client({"filesystem": {"root": str(tmp_path)}}, command=rpc) as client:
        warm = Warm(client)
        started = warm.start("sh", "-c", "echo up; sleep 1000", stderr=subprocess.PIPE)
        assert started.stdout is not None and started.stdout.readline() == b"up\n"
    assert started.communicate()[1].startswith(b"sandbox: ")
    assert started.returncode != 0
    done = warm.run("true")
    assert done.returncode == 125 and b"not there any more" in done.stderr
    assert not os.path.exists(warm.socket)


def test_a_tenant_cannot_reach_the_socket(warm: Warm) -> None:
    script = f"import socket; socket.socket(socket.AF_UNIX).connect({warm.socket!r})"
    assert warm.run(sys.executable, "-c", script).returncode != 0


def test_only_an_anonymous_pipe_is_taken_as_input(warm: Warm, tmp_path: Path) -> None:
    """A launcher of somebody's own, which passes another descriptor, starts nothing."""
    frame: dict[str, object] = {
        "t": "launch",
        "label": b"x",
        "argv": [b"touch", b"made"],
        "env": b"",
        "cwd": os.fsencode(tmp_path),
    }
    frame |= {"umask": 0o22, "stdin": "given", "merged": False, "fds": 1}
    with socket.socket(socket.AF_UNIX) as line, open(os.devnull) as device:
        line.connect(warm.socket)
        body = cbor.encode(frame)
        socket.send_fds(line, [struct.pack("<I", len(body)) + body], [device.fileno()])
        assert line.recv(8) == b""
    assert not (tmp_path / "made").exists()


KEYS = st.sampled_from(["t", "label", "argv", "env", "cwd", "umask", "stdin", "merged", "pty", "fds", "rows"])
VALUES = st.recursive(
    st.sampled_from(["launch", "relayed", "given", "null"])
    | st.binary(max_size=8)
    | st.integers(0, 2**32)
    | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(KEYS, VALUES, max_size=8) | st.binary(max_size=64))
def test_whatever_is_sent_there_affects_nobody_else(warm: Warm, sent: dict[str, Any] | bytes) -> None:
    body = sent if isinstance(sent, bytes) else cbor.encode(sent)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(warm.socket)
        try:
            line.sendall(struct.pack("<I", len(body)) + body)
            line.shutdown(socket.SHUT_WR)
            while line.recv(4096):
                pass
        except OSError:
            pass
    assert warm.run("echo", "alive").stdout == b"alive\n"


def test_a_closed_sandbox_offers_no_launcher(rpc: list[str], tmp_path: Path) -> None:
    client = Client({"filesystem": {"root": str(tmp_path)}}, command=rpc)
    client.close()
    with pytest.raises(SandboxClosed):
        client._connection.call("launcher", {})


def by_bash(warm: Warm, directory: Path, line: str) -> subprocess.CompletedProcess[bytes]:
    variables = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PWD": str(directory), "A": "b"}
    return warm.run("/bin/bash", "-c", line, env=variables, cwd=directory)


def test_a_program_that_needs_no_shell_is_the_same_as_by_bash(warm: Warm, tmp_path: Path) -> None:
    """Its variables, for one; the semicolon leaves the other line to bash."""
    direct, interpreted = (by_bash(warm, tmp_path, line).stdout.splitlines() for line in ("env", "env;"))
    assert b"A=b" in direct
    assert sorted(direct) == sorted(interpreted)


def test_a_program_that_does_not_exist_is_reported_by_bash(warm: Warm, tmp_path: Path) -> None:
    done = by_bash(warm, tmp_path, "no-such-program x")
    assert done.returncode == 127
    assert b"no-such-program: command not found" in done.stderr


def test_a_script_without_an_interpreter_line_is_run_by_bash(warm: Warm, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo version $BASH_VERSION")
    script.chmod(0o755)
    assert by_bash(warm, tmp_path, "./script").stdout.startswith(b"version 5")


def noted(warm: Warm, note: Path, *command: str) -> list[str]:
    return [warm.program, "--note", str(note), *warm.words(*command)[1:]]


def renamed_onto(note: Path, text: str) -> None:
    note.with_suffix(".new").write_text(text)
    note.with_suffix(".new").rename(note)


def until_it_waits(launcher: int) -> None:
    """From then on, whatever happens to its note wakes it."""
    links = ""
    while "inotify" not in links:
        with suppress(FileNotFoundError):  # it is closing one meanwhile
            links = " ".join(os.readlink(fd.path) for fd in os.scandir(f"/proc/{launcher}/fd"))


def started_with(warm: Warm, note: Path, *command: str) -> subprocess.Popen[bytes]:
    note.write_text("")
    words = noted(warm, note, *command)
    launcher = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until_it_waits(launcher.pid)
    return launcher


def test_a_command_without_a_note_runs_where_it_was_wrapped_for(warm: Warm) -> None:
    done = subprocess.run(noted(warm, warm.notes / "none", "echo", "here"), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"here\n"), done.stderr


def test_a_note_leads_to_another_sandbox_and_never_to_the_first(warm: Warm, rpc: list[str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    note = warm.notes / "note"
    with Client({"filesystem": {"root": str(tmp_path / "other")}}, command=rpc) as client:
        other = Warm(client)
        note.write_text(other.socket)
        words = noted(warm, note, "sh", "-c", "echo x > made")
        assert subprocess.run(words, cwd=tmp_path / "other", check=False).returncode == 0
        assert (tmp_path / "other" / "made").exists()
    done = subprocess.run(noted(warm, note, "touch", "ran"), capture_output=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (125, b"sandbox: the sandbox is not there any more\n")
    assert not (tmp_path / "ran").exists()


def test_a_command_with_an_empty_note_waits_for_a_place(warm: Warm) -> None:
    launcher = started_with(warm, warm.notes / "note", "echo", "here")
    renamed_onto(warm.notes / "note", warm.socket)
    assert launcher.communicate() == (b"here\n", b"")


def test_a_waiting_command_whose_note_is_taken_away_runs_where_it_was_wrapped_for(warm: Warm) -> None:
    launcher = started_with(warm, warm.notes / "note", "echo", "here")
    (warm.notes / "note").unlink()
    assert launcher.communicate() == (b"here\n", b"")


def test_a_note_with_words_is_printed_and_nothing_runs(warm: Warm, tmp_path: Path) -> None:
    launcher = started_with(warm, warm.notes / "note", "touch", str(tmp_path / "ran"))
    renamed_onto(warm.notes / "note", "there is no room")
    assert (*launcher.communicate(), launcher.wait()) == (b"", b"sandbox: there is no room\n", 125)
    assert not (tmp_path / "ran").exists()


def test_a_waiting_command_ends_with_its_sandbox_with_a_signal_and_with_its_parent(warm: Warm, tmp_path: Path) -> None:
    note = warm.notes / "note"
    launcher = started_with(warm, note, "true")
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait() == -signal.SIGINT
    script = shlex.join(noted(warm, note, "true")) + " & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        orphan = os.pidfd_open(pid)
        until_it_waits(pid)
        parent.kill()
        assert select.select([orphan], [], [], 60)[0], "its end makes it readable"
        os.close(orphan)
    launcher = started_with(warm, note, "true")
    warm.client.close()
    assert (*launcher.communicate(), launcher.wait()) == (b"", b"sandbox: the sandbox is not there any more\n", 125)
    assert not warm.notes.exists()
