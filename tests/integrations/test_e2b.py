"""E2B's own clients from PyPI, as they are, against a real server on the loopback."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    NotFoundException,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import PtySize
from e2b_code_interpreter import AsyncSandbox, Sandbox
from e2b_code_interpreter.charts import ChartType

from sandbox import Sandbox as Sandboxed
from tests.integrations.e2b_served import settings
from tests.network.lab import Pki
from tests.patience import until
from tests.server.serving import Served

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("h"))
    yield server
    server.end()


@pytest.fixture(autouse=True)
def client_settings(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings(served).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def sandbox(served: Served, client_settings: None) -> Iterator[Any]:
    made = Sandbox.create(timeout=120, metadata={"kind": "test"}, envs={"LASTING": "1"})
    yield made
    made.kill()


# -- sandboxes


def test_a_sandbox_is_made_found_and_ended(sandbox: Any) -> None:
    info = sandbox.get_info()
    assert (info.sandbox_id, info.metadata, info.state) == (sandbox.sandbox_id, {"kind": "test"}, SandboxState.RUNNING)
    found = Sandbox.list(query=SandboxQuery(metadata={"kind": "test"})).next_items()
    assert sandbox.sandbox_id in [one.sandbox_id for one in found]
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("echo $LASTING").stdout == "1\n"
    assert sandbox.get_metrics()[0].mem_total > 0
    assert sandbox.kill() and not sandbox.is_running() and not sandbox.kill()
    with pytest.raises(TimeoutException):
        sandbox.commands.run("true")


def test_a_timeout_is_set_and_ends_the_sandbox(sandbox: Any) -> None:
    before = sandbox.get_info().end_at
    sandbox.set_timeout(600)
    assert sandbox.get_info().end_at > before
    waiting = sandbox.commands.run("sleep 600", background=True, timeout=0)
    sandbox.set_timeout(1)
    with pytest.raises(TimeoutException, match="killed or reached"):
        waiting.wait()


def test_a_paused_sandbox_continues_when_somebody_connects(sandbox: Any) -> None:
    sandbox.run_code("x = 42")
    sandbox.pause()
    assert not sandbox.is_running()
    assert sandbox.get_info().state == SandboxState.PAUSED
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.run_code("x").text == "42"


def test_a_sandbox_is_paused_at_its_timeout_and_wakes_by_itself(served: Served) -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    made = Sandbox.create(timeout=120, lifecycle=lifecycle)
    try:
        made.run_code("x = 42")
        made.set_timeout(1)
        until(lambda: made.get_info().state == SandboxState.PAUSED)
        assert not made.is_running()
        assert made.run_code("x").text == "42"
        assert made.is_running()
    finally:
        made.kill()


def test_a_fork_and_a_snapshot_have_the_files(sandbox: Any) -> None:
    sandbox.files.write("/home/user/state", "before", metadata={"made": "first"})
    (fork,) = sandbox.fork()
    snapshot = sandbox.create_snapshot()
    restored = Sandbox.create(snapshot.snapshot_id)
    try:
        sandbox.files.write("state", "after")
        assert [one.files.read("/home/user/state") for one in (fork, restored)] == ["before", "before"]
        told = [one.files.get_info("/home/user/state").metadata for one in (fork, restored, sandbox)]
        assert told == [{"made": "first"}, {"made": "first"}, None]
    finally:
        fork.kill()
        restored.kill()
        assert Sandbox.delete_snapshot(snapshot.snapshot_id)


def test_a_wrong_key_is_reported(served: Served) -> None:
    with pytest.raises(AuthenticationException):
        Sandbox.create(api_key="e2b_" + "0" * 40)


def test_what_is_not_supported_says_so(sandbox: Any) -> None:
    with pytest.raises(SandboxException, match="iam is not supported"):
        Sandbox.create(iam={"tokens": {"a": {"token_type": "JWT-SVID", "audience": "x"}}})
    with pytest.raises(AuthenticationException, match="one user"):
        sandbox.commands.run("true", user="root")


def test_with_a_name_and_a_certificate_one_variable_is_enough(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    pki.server_context(["box.localhost", "*.box.localhost"], [])
    both = str(tmp_path / "box.localhost.pem")
    words = ("--port", "0", "--cert", both, "--key", both, "--name", "box.localhost")
    server = Served(tmp_path / "home", *words, cwd=tmp_path)
    try:
        told = {"E2B_DOMAIN": f"box.localhost:{server.address.rpartition(':')[2]}", "E2B_API_KEY": server.token}
        plain = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
        code = "from e2b import Sandbox; s = Sandbox.create(); print(s.commands.run('echo over TLS').stdout); s.kill()"
        environment = {**plain, **told, "SSL_CERT_FILE": str(pki.file)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == "over TLS", done.stderr
    finally:
        server.end()


# -- commands and terminals


def test_commands_have_callbacks_codes_variables_and_a_directory(sandbox: Any) -> None:
    out: list[str] = []
    err: list[str] = []
    done = sandbox.commands.run(
        "echo $ONE $LASTING; pwd; echo problem >&2",
        envs={"ONE": "2"},
        cwd="/tmp",
        on_stdout=out.append,
        on_stderr=err.append,
    )
    assert (done.stdout, "".join(out), "".join(err)) == ("2 1\n/tmp\n", "2 1\n/tmp\n", "problem\n")
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run("echo last words; exit 7")
    assert (failed.value.exit_code, failed.value.stdout) == (7, "last words\n")
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 600", timeout=0.5)


def test_a_command_in_the_background_is_talked_to_and_killed(sandbox: Any) -> None:
    cat = sandbox.commands.run("cat", background=True, stdin=True)
    cat.send_stdin("one\n")
    cat.send_stdin("two\n")
    cat.close_stdin()
    assert cat.wait().stdout == "one\ntwo\n"
    sleeping = sandbox.commands.run("sleep 600", background=True, timeout=0)
    sleeping.disconnect()
    assert sleeping.pid in [one.pid for one in sandbox.commands.list()]
    joined = sandbox.commands.connect(sleeping.pid, timeout=0)
    assert sandbox.commands.kill(sleeping.pid) and not sandbox.commands.kill(sleeping.pid)
    with pytest.raises(CommandExitException):
        joined.wait()
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(sleeping.pid)


def test_much_output_arrives_whole(sandbox: Any) -> None:
    assert len(sandbox.commands.run("head -c 5000000 /dev/zero | tr '\\0' x").stdout) == 5_000_000


def test_a_terminal_is_resized_and_reads_input(sandbox: Any) -> None:
    seen = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    terminal.wait(on_pty=seen.extend)
    assert b"30 100" in seen


# -- files


def test_files_are_written_read_and_looked_at(sandbox: Any) -> None:
    files = sandbox.files
    assert files.write("deep/er/a.txt", "text").path == "/home/user/deep/er/a.txt"
    files.write("raw", b"\xff\x00")
    files.write("streamed", io.BytesIO(b"s" * 3_000_000))
    assert files.read("deep/er/a.txt") == "text"
    assert bytes(files.read("raw", format="bytes")) == b"\xff\x00"
    assert sum(map(len, files.read("streamed", format="stream"))) == 3_000_000
    files.write_files([{"path": "m1", "data": "1"}, {"path": "m2", "data": "2"}], gzip=True)
    assert [files.read(one) for one in ("m1", "m2")] == ["1", "2"]
    assert {one.name: one.type for one in files.list(".")}["deep"] == FileType.DIR
    assert files.make_dir("new") and not files.make_dir("new")
    assert files.rename("m1", "new/m1").path == "/home/user/new/m1"
    assert files.get_info("new/m1").size == 1
    files.remove("new")
    assert not files.exists("new/m1")
    with pytest.raises(FileNotFoundException):
        files.read("new/m1")


def test_a_watched_directory_reports_what_happens(sandbox: Any) -> None:
    sandbox.files.make_dir("watched")
    watch = sandbox.files.watch_dir("watched", recursive=True, include_entry=True)
    sandbox.files.write("watched/a/b", "x")
    events = watch.get_new_events()
    assert {(one.name, one.type) for one in events} >= {("a", FilesystemEventType.CREATE)}
    assert next(one.entry.path for one in events if one.name == "a") == "/home/user/watched/a"
    watch.stop()


def test_signed_urls_carry_files_both_ways(sandbox: Any) -> None:
    sandbox.files.write("f", "signed")
    with urllib.request.urlopen(sandbox.download_url("f", use_signature_expiration=60)) as answer:
        assert answer.read() == b"signed"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(sandbox.download_url("f", use_signature_expiration=-60))
    assert httpx.post(sandbox.upload_url("g"), files={"file": ("g", b"up")}).status_code == 200
    assert sandbox.files.read("g") == "up"


def test_a_port_is_reached_by_its_host(sandbox: Any, served: Served) -> None:
    script = (
        "import http.server as h; s = h.HTTPServer(('', 0), h.SimpleHTTPRequestHandler); "
        "print(s.server_port, flush=True); s.serve_forever()"
    )
    serving = sandbox.commands.run(f'python3 -c "{script}"', background=True, timeout=0)
    port = int(next(out for out, _, _ in serving if out))
    name = sandbox.get_host(port)
    assert name.startswith(f"{port}-{sandbox.sandbox_id}.localhost:")
    headers = {"Host": name, "E2B-Traffic-Access-Token": sandbox.traffic_access_token}
    assert httpx.get(served.address, headers=headers).status_code == 200
    assert httpx.get(served.address, headers={"Host": name}).status_code == 401


# -- code


def test_code_keeps_state_streams_and_shows_rich_results(sandbox: Any) -> None:
    out: list[str] = []
    results: list[Any] = []
    code = """
class Rich:
    def _repr_html_(self): return "<b>rich</b>"
    def _repr_png_(self): return b"png"
display(Rich())
print("printed")
x = 41
x + 1
"""
    done = sandbox.run_code(code, on_stdout=lambda message: out.append(message.line), on_result=results.append)
    assert (done.text, "".join(out), done.execution_count) == ("42", "printed\n", 1)
    assert [one.html for one in results] == ["<b>rich</b>", None] and results[0].png == "cG5n"
    failed = sandbox.run_code("x / 0")
    assert failed.error.name == "ZeroDivisionError" and "x / 0" in failed.error.traceback
    assert sandbox.run_code("import os; os.environ['ONCE'] + os.environ['LASTING']", envs={"ONCE": "0"}).text == "01"
    assert sandbox.run_code("os.environ.get('ONCE')").text is None


@pytest.mark.vm
def test_the_same_in_a_machine(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("engine: qemu\n")
    server = Served(tmp_path)
    try:
        options = {"api_url": server.address, "sandbox_url": server.address, "api_key": server.token}
        box = Sandbox.create(timeout=600, lifecycle={"on_timeout": "pause", "auto_resume": True}, **options)
        box.files.write("a.txt", "x", metadata={"kept": "yes"})
        assert box.run_code("x = 42; x").text == "42"
        box.set_timeout(1)
        until(lambda: box.get_info().state == SandboxState.PAUSED)
        assert box.run_code("x").text == "42"
        (fork,) = box.fork()
        assert fork.commands.run("uname -n; cat a.txt").stdout == f"sandbox-{fork.sandbox_id.removeprefix('vm-')}\nx"
        assert fork.files.get_info("a.txt").metadata == {"kept": "yes"}
    finally:
        server.end()


CHART = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 5, 6], label="steps")
plt.title("A line")
plt.show()
"""


def test_charts_and_tables_come_as_data_too(tmp_path: Path) -> None:
    packages = os.path.dirname(os.path.dirname(find_spec("e2b_charts").origin))  # type: ignore[union-attr, arg-type]
    (tmp_path / "config.yaml").write_text(f"filesystem: {{allow_read: [{packages}]}}\n")
    server = Served(tmp_path)
    try:
        options = {"api_url": server.address, "sandbox_url": server.address, "api_key": server.token}
        box = Sandbox.create(envs={"PYTHONPATH": packages}, **options)
        (shown,) = box.run_code(CHART).results
        assert (shown.chart.type, shown.chart.title) == (ChartType.LINE, "A line")
        assert shown.chart.elements[0].points == [(1, 4), (2, 5), (3, 6)]
        assert shown.png
        table = box.run_code("import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', None]})").results[0]
        assert table.data == {"a": [1, 2], "b": ["x", None]}
        assert "<table" in table.html
    finally:
        server.end()


def test_other_languages(sandbox: Any) -> None:
    assert "".join(sandbox.run_code("Y=4; echo $((Y+2))", language="bash").logs.stdout) == "6\n"
    assert sandbox.run_code("const y = 40; y + 2", language="js").text == "42"
    with pytest.raises(SandboxException, match="not supported"):
        sandbox.run_code("1", language="r")


def test_typescript_with_the_package_inside(tmp_path: Path) -> None:
    modules = Path(__file__).parents[2] / ".integrations" / "e2b" / "node_modules"
    with Sandboxed({"filesystem": {"root": str(tmp_path), "allow_read": [str(modules)]}}) as inside:
        inside.exec(["ln", "-s", str(modules), "node_modules"], check=True)
        with inside.session("typescript") as session:
            assert session.run("interface P { n: number }\nconst p: P = { n: 41 }; p.n + 1").text == "42"
            assert session.run("console.log(p.n as unknown)").stdout == "41\n"


def test_contexts_are_apart_and_restart(sandbox: Any) -> None:
    sandbox.run_code("x = 1")
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    assert sandbox.run_code("import os; y = 2; os.getcwd()", context=context).text == "/tmp"
    assert context.id in [one.id for one in sandbox.list_code_contexts()]
    sandbox.restart_code_context(context)
    assert sandbox.run_code("y", context=context).error.name == "NameError"
    sandbox.remove_code_context(context)
    with pytest.raises(NotFoundException):
        sandbox.run_code("1", context=context)
    assert sandbox.run_code("x").text == "1"


def test_code_that_is_late_is_interrupted_and_its_state_stays(sandbox: Any) -> None:
    sandbox.run_code("x = 42")
    with pytest.raises(TimeoutException):
        sandbox.run_code("import time\nwhile True: time.sleep(0.01)", timeout=1)
    assert sandbox.run_code("x").text == "42"


# -- asyncio


async def _everything_async() -> None:
    sandbox = await AsyncSandbox.create(timeout=120)
    try:
        assert await sandbox.is_running()
        runs = [sandbox.commands.run(f"echo {number}") for number in range(8)]
        assert [one.stdout for one in await asyncio.gather(*runs)] == [f"{number}\n" for number in range(8)]
        cat = await sandbox.commands.run("cat", background=True, stdin=True)
        await cat.send_stdin("hello")
        await cat.close_stdin()
        assert (await cat.wait()).stdout == "hello"
        await sandbox.files.write("a", "b")
        assert await sandbox.files.read("a") == "b"
        seen: asyncio.Queue[str] = asyncio.Queue()
        watch = await sandbox.files.watch_dir(".", on_event=lambda event: seen.put_nowait(event.name))
        await sandbox.files.write("c", "d")
        assert await asyncio.wait_for(seen.get(), 20) == "c"
        await watch.stop()
        got = bytearray()
        terminal = await sandbox.pty.create(PtySize(24, 80), on_data=got.extend)
        await sandbox.pty.send_stdin(terminal.pid, b"echo $((40 + 2)); exit\n")
        await terminal.wait()
        assert b"42" in got
        both = [sandbox.run_code("1 + 1"), sandbox.run_code("2 + 2")]
        assert [one.text for one in await asyncio.gather(*both)] == ["2", "4"]
    finally:
        assert await sandbox.kill()


def test_the_asyncio_client_does_the_same() -> None:
    asyncio.run(_everything_async())
