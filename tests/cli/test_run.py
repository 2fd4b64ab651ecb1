"""`sandbox run` as a person or a script uses it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.person import Person
from tests.ports import unused_port
from tests.sandboxes import Command

pytestmark = pytest.mark.walls

SANDBOX = [sys.executable, "-m", "sandbox"]


def run(*words: str | bytes, cwd: Path, **more: object) -> subprocess.CompletedProcess[str]:
    options: dict[str, object] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, **more}
    return subprocess.run([*SANDBOX, "run", *words], cwd=cwd, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_output_and_status_are_the_commands(tmp_path: Path) -> None:
    done = run("--", "sh", "-c", "echo out; echo err >&2; exit 7", cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)


@pytest.mark.parametrize("before", ["", "sleep 0.1; "], ids=["at once", "later"])
def test_a_command_that_asks_for_a_name_is_answered(tmp_path: Path, before: str) -> None:
    done = run("--", "sh", "-c", f"{before}getent hosts one.example", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[1:]) == (0, ["one.example"])


def test_options_after_the_command_are_the_commands(tmp_path: Path) -> None:
    assert run("echo", "--json", "-n", "--", "x", cwd=tmp_path).stdout == "--json -n -- x\n"
    assert run("--timeout", "20s", "--", "printf", "%s", "--help", cwd=tmp_path).stdout == "--help"


def test_a_named_pipe_as_input_stays_the_hosts(tmp_path: Path) -> None:
    project, fifo = tmp_path / "project", tmp_path / "fifo"
    project.mkdir()
    os.mkfifo(fifo, 0o600)
    both = os.open(fifo, os.O_RDWR)
    os.write(both, b"line\n")
    code = "import os; print(os.read(0, 9)); os.fchmod(0, 0o666)"
    with fifo.open("rb") as given:
        done = run("python3", "-c", code, cwd=project, stdin=given)
    os.close(both)
    assert "line" in done.stdout
    assert fifo.stat().st_mode & 0o777 == 0o600


def test_a_signal_is_reported_as_128_plus_its_number(tmp_path: Path) -> None:
    assert run("sh", "-c", "kill -KILL $$", cwd=tmp_path).returncode == 137


def test_our_own_errors_are_125_with_one_line(tmp_path: Path) -> None:
    for words in (["--root", "/nowhere", "true"], ["--memory", "lots", "true"], ["--mode", "strong", "true"], []):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 125, words
        assert done.stderr.startswith("sandbox: ")
        assert done.stderr.count("\n") == 1


def test_a_mistyped_option_is_an_error_that_names_the_one_meant(tmp_path: Path) -> None:
    done = run("--memroy", "5m", "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (125, "sandbox: unknown option --memroy; did you mean --memory?\n")
    done = run("--pids", "many", "true", cwd=tmp_path)
    assert done.returncode == 125
    assert "'many'; see `sandbox run --help`\n" in done.stderr
    assert "did you mean" not in run("--porridge", "--", "true", cwd=tmp_path).stderr


def test_a_directory_that_is_gone_is_said_in_words(tmp_path: Path) -> None:
    words = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", *SANDBOX, "run", "true"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        125,
        "sandbox: the current directory no longer exists\n",
    )


def test_the_machines_own_temporary_directory_is_not_a_project(tmp_path: Path) -> None:
    done = run("--root", "/tmp", "true", cwd=tmp_path)
    assert "every sandbox has its own /tmp; choose a directory in it" in done.stderr


def test_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*SANDBOX, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 125
    assert "No space left on device" in done.stderr


def test_what_was_refused_is_shown_when_the_command_failed(tmp_path: Path) -> None:
    ask = "import sys, urllib.request as u; [u.urlopen(f'http://{name}/') for name in sys.argv[1:]]"
    one = run("python3", "-c", ask, "one.example", cwd=tmp_path)
    told = "sandbox: blocked: one.example:80 is not allowed; to allow it, add 'one.example' to network.allowed_hosts\n"
    assert one.stderr.endswith(told)
    assert one.stderr.count("sandbox: blocked") == 1
    well = run("sh", "-c", 'python3 -c "$1" one.example 2>/dev/null; true', "sh", ask, cwd=tmp_path)
    assert (well.returncode, well.stderr) == (0, "")


def test_many_refusals_are_counted(tmp_path: Path) -> None:
    ask = "for name in a b c d e; do curl -s $name.example; done; exit 1"
    done = run("sh", "-c", ask, cwd=tmp_path)
    assert done.stderr.count("sandbox: blocked") == 4
    assert "2 more; list them with `sandbox audit --blocked-only --sandbox vm-" in done.stderr


def test_a_published_port_leads_inside_and_a_lent_one_out(tmp_path: Path) -> None:
    published = unused_port()
    with socket.create_server(("127.0.0.1", 0)) as lent:
        serve = (
            "import socket, sys; server = socket.create_server(('127.0.0.1', 7000)); print('up', flush=True);"
            "server.accept()[0].sendall(b'from inside');"
            "socket.create_connection(('localhost', int(sys.argv[1]))).sendall(b'from inside')"
        )
        port = str(lent.getsockname()[1])
        words = ["run", "--publish", f"{published}:7000", "--localhost", port, "python3", "-c", serve, port]
        with subprocess.Popen([*SANDBOX, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            with socket.create_connection(("127.0.0.1", published)) as inward:
                assert inward.recv(100) == b"from inside"
            outward, _ = lent.accept()
            with outward:
                assert outward.recv(100) == b"from inside"


@pytest.mark.process_walls("what a machine has not handed over ends with it")
def test_what_a_tenant_sent_before_it_ended_reaches_the_client_of_a_published_port(tmp_path: Path) -> None:
    """More than the kernel's buffers between hold is still on its way when the command has ended."""
    published = unused_port()
    serve = (
        "import socket, os; server = socket.create_server(('127.0.0.1', 7000)); print('up', flush=True);"
        "socket.socket.sendall(server.accept()[0], b'x' * 1_000_000); os._exit(0)"
    )
    words = ["run", "--publish", f"{published}:7000", "python3", "-c", serve]
    with subprocess.Popen([*SANDBOX, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        with socket.create_connection(("127.0.0.1", published)) as inward:
            inward.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            assert process.stdout.readline() == ""  # the command has ended, and nothing was read so far
            received = b""
            while data := inward.recv(65536):
                received += data
    assert len(received) == 1_000_000


def test_json_and_detach_do_not_go_together(tmp_path: Path) -> None:
    assert run("--json", "--detach", "true", cwd=tmp_path).returncode == 125


def test_too_few_descriptors_are_one_line_too(tmp_path: Path) -> None:
    words = ["sh", "-c", 'ulimit -n 14; exec "$@"', "sh", *SANDBOX, "run", "true"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert done.stderr.startswith("sandbox: ")
    assert "Traceback" not in done.stderr


def test_a_command_that_does_not_exist_is_127(tmp_path: Path) -> None:
    done = run("no-such-program", cwd=tmp_path)
    assert done.returncode == 127
    assert done.stderr == "sandbox: no-such-program: no such command inside the sandbox\n"


def test_an_invalid_port_is_an_error(tmp_path: Path) -> None:
    done = run("--localhost", "70000", "true", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (125, "sandbox: network.localhost_ports: 70000 is not a port\n")


def test_a_timeout_is_124_and_said(tmp_path: Path) -> None:
    done = run("--timeout", "200ms", "sleep", "1000", cwd=tmp_path)
    assert done.returncode == 124
    assert "timeout" in done.stderr


@pytest.mark.root
@pytest.mark.process_walls("a machine needs more memory than that")
def test_out_of_memory_is_said(tmp_path: Path) -> None:
    code = "x = bytearray()\nwhile True: x += bytes(2**20); x[-1] = 1"
    done = run("--memory", "64m", "/usr/bin/python3", "-c", code, cwd=tmp_path)
    assert "out of memory: the limit is 64 MiB" in done.stderr
    assert done.returncode == 137


def test_json_holds_the_whole_result(tmp_path: Path) -> None:
    result = json.loads(run("--json", "sh", "-c", "echo hi; exit 3", cwd=tmp_path).stdout)
    assert (result["stdout"], result["exit_code"], result["timed_out"]) == ("hi\n", 3, False)


def test_json_shows_what_ran_what_it_used_and_what_was_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    script = "cat .env; echo x > made; curl -s blocked.example || curl -sm5 http://blocked.example; exit 0"
    done = run("--json", "--overlay", "sh", "-c", script, cwd=tmp_path)
    result = json.loads(done.stdout)
    assert result["id"].startswith("vm-")
    assert (result["overlay"], result["changed"]) == (result["id"], 1)
    assert any("blocked.example" in one["reason"] for one in result["refused"]["hosts"])
    assert isinstance(result["refused"]["files"], list)
    assert all(result[name] >= 0 for name in ("duration_ms", "user_ms", "system_ms"))
    assert result["max_rss_kb"] > 0
    assert result["error"] is None


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--json", "--timeout", "100ms", "sleep", "1000"], 124),
        (["--json", "no-such-program"], 127),
        (["--json", "/etc/passwd"], 126),
        (["--json", "sh", "-c", "kill -KILL $$"], 137),
        (["--json", "--root", "/nowhere", "true"], 125),
        (["--json", "--memroy", "5m", "--", "true"], 125),
        (["--json"], 125),
    ],
    ids=["timeout", "no such command", "no program", "signal", "no such project", "mistyped", "no command"],
)
def test_json_always_comes_and_its_status_is_the_process_s(tmp_path: Path, words: list[str], status: int) -> None:
    done = run(*words, cwd=tmp_path)
    result = json.loads(done.stdout)
    assert (done.returncode, result["exit_code"]) == (status, status)
    assert (result["error"] is None) == (status in (124, 137))


def test_json_of_a_run_without_changes_leaves_no_overlay(tmp_path: Path) -> None:
    result = json.loads(run("--json", "--overlay", "true", cwd=tmp_path).stdout)
    assert (result["overlay"], result["changed"]) == (None, 0)


def test_input_comes_through_pipes_and_files(tmp_path: Path) -> None:
    assert run("cat", cwd=tmp_path, stdin=None, input="from a pipe").stdout == "from a pipe"
    (tmp_path / "in").write_text("from a file\n" * 100_000)
    with open(tmp_path / "in") as given, open(tmp_path / "out", "w") as taken:
        run("cat", cwd=tmp_path, stdin=given, stdout=taken, stderr=subprocess.PIPE, capture_output=False)
    assert (tmp_path / "out").read_text() == (tmp_path / "in").read_text()


def test_a_file_given_as_output_cannot_be_opened_again_from_inside(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    log = tmp_path / "log"
    log.write_text("precious\n")
    with open(log, "a") as appended:
        run("sh", "-c", "exec 3<>/proc/self/fd/1; : > /proc/self/fd/1; echo added", cwd=project, stdout=appended,
            stderr=subprocess.PIPE, capture_output=False)  # fmt: skip
    assert log.read_text() == "precious\nadded\n"


def test_a_directory_given_as_input_opens_nothing(tmp_path: Path) -> None:
    directory = os.open("/", os.O_RDONLY)
    done = run("sh", "-c", "ls /proc/self/fd/0/root /proc/self/fd/0/etc/shadow", cwd=tmp_path, stdin=directory)
    os.close(directory)
    assert done.stdout == ""


def test_variables_are_passed_and_set(tmp_path: Path) -> None:
    environment = {**os.environ, "FAVOURITE": "blue"}
    words = ("--env", "FAVOURITE", "--env", "SIZE=42", "sh", "-c", "echo $FAVOURITE $SIZE")
    assert run(*words, cwd=tmp_path, env=environment).stdout == "blue 42\n"


def test_paths_are_shown_read_only_or_writable(tmp_path: Path) -> None:
    for name in ("project", "data", "out"):
        (tmp_path / name).mkdir()
    words = ("--ro", str(tmp_path / "data"), "--rw", str(tmp_path / "out"), "sh", "-c")
    done = run(*words, f"touch {tmp_path}/data/x; touch {tmp_path}/out/x; echo ok", cwd=tmp_path / "project")
    assert done.stdout == "ok\n"
    assert (tmp_path / "out" / "x").exists()
    assert not (tmp_path / "data" / "x").exists()


def test_a_config_file_is_read_and_a_mistake_in_it_is_reported(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("limits:\n  timeout: 200ms\n")
    assert run("--config", "good.yaml", "sleep", "100", cwd=tmp_path).returncode == 124
    (tmp_path / "bad.yaml").write_text("limts: {}\n")
    done = run("--config", "bad.yaml", "true", cwd=tmp_path)
    assert done.returncode == 125
    assert "unknown key 'limts'; did you mean 'limits'?" in done.stderr


def test_a_signal_to_us_reaches_the_command_which_decides(tmp_path: Path) -> None:
    loop = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    command = [*SANDBOX, "run", "sh", "-c", loop]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "caught\n"
        assert process.wait() == 5


def test_a_person_at_a_terminal_gets_a_terminal(tmp_path: Path) -> None:
    talk = "stty size; echo $TERM; tty; read x; echo got $x; exit 9"
    with Person("run", "sh", "-c", talk, cwd=tmp_path, TERM="vt100") as person:
        assert person.sees("vt100")
        assert person.sees("/dev/pts/")
        person.types("typed\n")
        assert person.sees("got typed")
        assert person.status() == 9


def test_a_person_whose_home_is_the_project_gets_a_notice(tmp_path: Path) -> None:
    (tmp_path / ".profile").touch()
    with Person("run", "true", cwd=tmp_path, HOME=str(tmp_path)) as person:
        assert person.sees("your home directory is the project")
        assert person.status() == 0


def test_what_was_typed_before_the_walls_stood_is_not_lost(tmp_path: Path) -> None:
    with Person("run", "sh", "-c", "read x; echo got $x", cwd=tmp_path, typed="early\n") as person:
        assert person.sees("got early")
        assert person.status() == 0


@pytest.mark.process_walls("a machine takes more to start")
def test_nothing_heavy_is_imported_to_run_a_command(tmp_path: Path) -> None:
    run = "from sandbox.cli.main import main; main(['run', '--', 'true'])"
    for _ in range(2):  # a user's very first run makes the authority that all others use
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", run],
            cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    heavy = {"asyncio", "ssl", "cryptography", "rich", "typing", "msgspec", "dataclasses", "inspect", "subprocess",
             "yaml", "pathlib", "json", "shutil", "h11", "h2", "cbor2", "hashlib", "logging",
             "sandbox.network.tls.ca", "sandbox.network.tls.trust", "sandbox.network.gate.gate"}  # fmt: skip
    assert imported & heavy == set()
    assert "sandbox.network.tls.stored_authority" in imported  # tenants trust the gate all the same
    assert "sandbox.engines.bubblewrap" in imported


def test_threads_are_not_loaded_until_there_is_one_to_start(tmp_path: Path) -> None:
    # What `run` and `srt` do around the command, which may take long enough for a thread; and in a home without
    # secrets, over which a thread would watch.
    held = "from sandbox import readiness; readiness.hold(); from sandbox import Sandbox; Sandbox().close()"
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    for _ in range(2):  # as above
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", held], env={**os.environ, "HOME": str(home)},
            cwd=project, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert imported & {"threading", "re", "enum", "argparse", "gettext"} == set()


@pytest.mark.process_walls("a machine takes more to start")
def test_a_profile_whose_login_nobody_has_made_yet_reads_no_credential_files(tmp_path: Path) -> None:
    run = "from sandbox.cli.main import main; main(['run', '--profile', 'claude', '--', 'true'])"
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    for _ in range(2):  # as above
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", run], env={**os.environ, "HOME": str(home)},
            cwd=project, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    heavy = {"asyncio", "ssl", "typing", "datetime", "hashlib", "urllib.parse", "sandbox.network.credentials.formats",
             "sandbox.network.credentials.token_shapes", "sandbox.network.secrets.store"}  # fmt: skip
    assert imported & heavy == set()
    assert "sandbox.network.credentials.login" in imported


def test_a_program_that_is_not_shown_says_why_and_what_shows_it(cli: Command, tmp_path: Path) -> None:
    tool = tmp_path / "elsewhere" / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho it works\n")
    tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    done = cli("run", "--", "mytool", env=environment)
    assert done.returncode == 127
    assert f"mytool: no such command inside the sandbox: {tool} is not visible there" in done.stderr
    assert f"`--ro {tool.parent}`" in done.stderr
    assert cli("run", "--ro", str(tool.parent), "--", "mytool", env=environment).stdout == "it works\n"
    assert cli("run", "--", "nothing-at-all", env=environment).stderr == (
        "sandbox: nothing-at-all: no such command inside the sandbox\n"
    )


def test_a_path_that_leads_into_another_users_home_hides_no_program_of_the_system(cli: Command, tmp_path: Path) -> None:
    theirs = tmp_path / "another" / "bin"
    theirs.mkdir(parents=True)
    for name in ("python3", "python", "sh"):
        (theirs / name).write_text("#!/bin/sh\necho theirs\n")
        (theirs / name).chmod(0o755)
    theirs.parent.chmod(0)
    environment = {**os.environ, "PATH": f"{theirs}:/usr/local/bin:/usr/bin:/bin"}
    try:
        assert cli("run", "--", "python3", "-c", "print('ours')", env=environment).stdout == "ours\n"
        assert cli("run", "--", "sh", "-c", "python3 -c 'print(1)'", env=environment).stdout == "1\n"
    finally:
        theirs.parent.chmod(0o700)
