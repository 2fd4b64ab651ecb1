"""Where a secret's value comes from, and when: at the start, when a file changes, before a life ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import pytest

from sandbox import Sandbox
from sandbox.config.model import Network, Secret
from sandbox.errors import ConfigError
from sandbox.network.gate_thread import GateThread
from sandbox.network.secrets import held_secret
from sandbox.network.secrets.sources import check, read, resolve
from tests.network.lab import PLACEHOLDER, Lab

MakeLab = Callable[..., Lab]
API = "api.example.com"


def secret(**source: Any) -> dict[str, Any]:
    return {"hosts": [API], "placeholder": PLACEHOLDER, **source}


def sent(lab: Lab) -> str:
    """What the origin gets for the placeholder; the refusal when it gets nothing."""
    before = len(lab.origins[API].seen)
    _, _, body = lab.ask("GET", "/", {"X-Key": PLACEHOLDER})
    seen = lab.origins[API].seen
    return str(dict(seen[-1]["headers"])["x-key"]) if len(seen) > before else body.decode()


def test_a_missing_variable_fails_only_the_request_that_needs_it_with_its_name(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(from_env="NOT_SET_HERE")}})
    assert lab.ask("GET", "/")[0] == 200
    told = sent(lab)
    assert "the secret KEY has no value" in told and "no variable 'NOT_SET_HERE'" in told
    assert "network.secrets.KEY" in told


def plant(place: Path, word: str) -> None:
    """A program that prints `word`, by another one that it finds on PATH."""
    place.mkdir(parents=True)
    for name, text in (("token-program", "exec said"), ("said", f"echo {word}")):
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)


@pytest.mark.parametrize("where", ["project/bin", "elsewhere/bin", "elsewhere/node_modules/.bin"])
def test_a_program_that_a_tenant_left_on_path_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    plant(tmp_path / where, "planted-by-a-tenant")
    plant(tmp_path / "own", "the-persons-own")
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    (tmp_path / "elsewhere" / "pyvenv.cfg").touch()
    (tmp_path / "project").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PATH", f"{tmp_path / where}:bin:{tmp_path / 'own'}:/usr/bin:/bin")
    assert read(Secret.read(secret(from_command=["token-program"])), "x")[0] == "the-persons-own"


@pytest.mark.walls
@pytest.mark.parametrize("moved", [False, True], ids=["there", "moved"])
def test_nor_one_where_a_tenant_of_an_earlier_run_could_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "state"))
    first, now = tmp_path / "first", tmp_path / ("moved" if moved else "first")
    plant(first / "deep/bin", "planted-by-a-tenant")
    plant(tmp_path / "own", "the-persons-own")
    run = [sys.executable, "-m", "sandbox", "run", "--", "true"]
    subprocess.run(run, cwd=first, env={**os.environ, "PYTHONPATH": ""}, check=True)
    first.rename(now)
    monkeypatch.setenv("PATH", f"{now / 'deep/bin'}:{tmp_path / 'own'}:/usr/bin:/bin")
    assert read(Secret.read(secret(from_command=["token-program"])), "x")[0] == "the-persons-own"


@pytest.mark.walls
@pytest.mark.parametrize(
    "command",
    [["{}/said"], ["sh", "{}/said"], ["env", "--chdir={}", "./said"], ["sh", "{}/../project/said"], ["sh", "{}/link"]],
    ids=["a program", "a script", "a directory in an option", "another spelling", "a link that leads out"],
)
def test_nor_what_is_named_there_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "state"))
    plant(tmp_path / "project", "planted-by-a-tenant")
    plant(tmp_path / "own", "the-persons-own")
    (tmp_path / "project/link").symlink_to(tmp_path / "own/said")
    asked = Secret.read(secret(from_command=[one.format(tmp_path / "project") for one in command]))
    with Sandbox({"filesystem": {"root": str(tmp_path / "project")}}) as sandbox:
        assert sandbox.exec("true").exit_code == 0
        with pytest.raises(ConfigError, match="where sandboxes write"):  # a renewal, in the same run
            read(asked, "x")
    with pytest.raises(ConfigError, match="where sandboxes write"):
        read(asked, "x")
    asked = Secret.read(secret(from_command=["sh", str(tmp_path / "own/said")]))
    assert read(asked, "x")[0] == "the-persons-own"


@pytest.mark.walls
def test_a_read_only_project_is_not_distrusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "state"))
    plant(tmp_path / "tools/bin", "the-persons-own")
    with Sandbox({"filesystem": {"root": str(tmp_path / "tools"), "read_only": True}}) as sandbox:
        assert sandbox.exec("true").exit_code == 0
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools/bin'}:/usr/bin:/bin")
    assert read(Secret.read(secret(from_command=["token-program"])), "x")[0] == "the-persons-own"


@pytest.mark.parametrize(
    "source",
    [{"from_file": "/no/such/file"}, {"from_command": ["/no/such/program"]}, {"from_command": ["false"]}],
)
def test_any_other_source_without_a_value_is_an_error_when_it_is_needed(
    make_lab: MakeLab, source: dict[str, Any]
) -> None:
    lab = make_lab({"secrets": {"KEY": secret(**source)}})
    assert "has no value" in sent(lab)
    assert lab.origins[API].seen == []


def test_a_placeholder_without_a_value_is_refused_in_a_body_too(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(from_env="NOT_SET_HERE", **{"in": ["body"]})}})
    status, _, body = lab.ask("POST", "/", {"Content-Type": "text/plain"}, PLACEHOLDER.encode())
    assert status == 403 and b"has no value" in body
    assert lab.origins[API].seen == []


def test_a_file_is_read_again_when_it_has_changed(make_lab: MakeLab, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("the-first-value\n")
    lab = make_lab({"secrets": {"KEY": secret(from_file=str(file))}})
    assert sent(lab) == "the-first-value"
    file.write_text("the-second-value-1\n")
    assert sent(lab) == "the-second-value-1"
    lab.origins[API].answer = lambda *_: (200, [], b"the-first-value the-second-value-1")
    assert b"value" not in lab.ask("GET", "/")[2]  # both are secret for the sandbox's whole life
    file.unlink()
    assert "the-second" in sent(lab) or "has no value" in sent(lab)


def test_a_field_of_a_json_file(tmp_path: Path) -> None:
    file = tmp_path / "adc.json"
    file.write_text(json.dumps({"a": {"b.c": ["no", "the-value-itself"]}}))
    one = Secret.read(secret(from_file=str(file), field=r"a.b\.c.1"))
    check(one, "s")
    assert read(one, "s") == ("the-value-itself", None)
    for bad in ("a.x", "a", "a.b\\.c.7"):
        with pytest.raises(ConfigError, match="no string in the field"):
            read(Secret.read(secret(from_file=str(file), field=bad)), "s")
    file.write_text("the-value-itself is no json")
    with pytest.raises(ConfigError) as caught:
        read(one, "s")
    assert "the-value" not in str(caught.value)


class FileKeyring(keyring.backend.KeyringBackend):
    """A keyring of the test's own."""

    priority = 1
    stored: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        if service == "broken":
            raise RuntimeError("locked: secret-detail")
        return self.stored.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.stored[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.stored[service, username]


@pytest.fixture
def own_keyring() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(FileKeyring())  # type: ignore[no-untyped-call]
    yield
    keyring.set_keyring(before)


@pytest.mark.usefixtures("own_keyring")
def test_the_systems_keyring(make_lab: MakeLab) -> None:
    keyring.set_password("api.example.com", "me", "kept-in-the-keyring")
    lab = make_lab({"secrets": {"KEY": secret(from_keyring=["api.example.com", "me"])}})
    assert sent(lab) == "kept-in-the-keyring"
    lab = make_lab({"secrets": {"KEY": secret(from_keyring=["api.example.com", "nobody"])}})
    assert "the keyring has no such entry" in sent(lab)
    lab = make_lab({"secrets": {"KEY": secret(from_keyring=["broken", "me"])}})
    assert "the keyring failed: RuntimeError" in sent(lab)


COUNTING = """
n=$(cat {count} 2>/dev/null || echo 0); n=$((n+1)); echo $n > {count}
{more}
"""


def counting(tmp_path: Path, more: str) -> list[str]:
    return ["sh", "-c", COUNTING.format(count=tmp_path / "count", more=more)]


def runs(tmp_path: Path) -> int:
    return int((tmp_path / "count").read_text())


def test_what_a_program_prints_is_used_until_its_life_ends_and_renewed_before(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.time()]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    lab = make_lab({"secrets": {"KEY": secret(from_command=counting(tmp_path, "echo token-number-$n"), ttl="10m")}})
    assert [sent(lab) for _ in range(3)] == ["token-number-1"] * 3
    assert runs(tmp_path) == 1
    clock[0] += 530  # a minute before its end: renewed in the background, the old one is used meanwhile
    assert sent(lab) in ("token-number-1", "token-number-2")
    clock[0] += 71  # the end: whoever needs it waits
    assert sent(lab) in ("token-number-2", "token-number-3")
    assert runs(tmp_path) <= 3
    lab.origins[API].answer = lambda *_: (200, [], b"token-number-1 token-number-2")
    assert b"token-number" not in lab.ask("GET", "/")[2]


def test_a_program_says_in_json_when_its_token_ends(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.time()]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock[0] + 100))
    print_it = f'echo "{{\\"token\\": \\"token-number-$n\\", \\"end\\": \\"{end}\\"}}"'
    source = secret(from_command=counting(tmp_path, print_it), field="token", expires="end")
    lab = make_lab({"secrets": {"KEY": source}})
    assert sent(lab) == sent(lab) == "token-number-1"
    assert runs(tmp_path) == 1
    clock[0] += 101
    assert sent(lab) == "token-number-2"


def test_a_program_that_fails_is_not_asked_again_at_once(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.time()]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    lab = make_lab({"secrets": {"KEY": secret(from_command=counting(tmp_path, "exit 3"), ttl=60)}})
    for _ in range(5):
        assert "failed with status 3" in sent(lab)
    assert runs(tmp_path) == 1
    clock[0] += held_secret.RETRY
    assert "failed with status 3" in sent(lab)
    assert runs(tmp_path) == 2


def test_nothing_of_a_request_reaches_the_program(make_lab: MakeLab, tmp_path: Path) -> None:
    more = f"env > {tmp_path}/env; cat > {tmp_path}/stdin; echo $@ > {tmp_path}/args; echo the-token-itself"
    lab = make_lab({"secrets": {"KEY": secret(from_command=counting(tmp_path, more), ttl=60)}})
    lab.ask("POST", "/?marker=FROM_THE_TENANT", {"X-Key": PLACEHOLDER, "X-More": "FROM_THE_TENANT"}, b"FROM_THE_TENANT")
    assert all("FROM_THE_TENANT" not in (tmp_path / name).read_text() for name in ("env", "stdin", "args"))


def test_a_program_does_not_run_where_tenants_leave_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    source = Secret.read({"from_command": ["/bin/sh", "-c", "pwd"], "hosts": [API]})
    assert resolve({"KEY": source}) == {"KEY": str(tmp_path)}


def test_others_do_not_wait_while_a_program_runs(make_lab: MakeLab, tmp_path: Path) -> None:
    """A fifo holds the program up: the gate answers others meanwhile."""
    import threading

    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "count").write_text("0")
    more = f"if [ $n = 1 ]; then echo the-first-token; else cat {fifo}; fi"
    lab = make_lab({"secrets": {"KEY": secret(from_command=counting(tmp_path, more), ttl=0.2)}})
    credential = lab.interception.secrets._held[0]
    credential._end = credential._renew = 0.0  # type: ignore[attr-defined]
    waiting = threading.Thread(target=lambda: told.append(sent(lab)))
    told: list[str] = []
    waiting.start()
    with open(fifo, "w") as pipe:  # opens when the program reads
        assert lab.ask("GET", "/other")[0] == 200
        assert told == []
        pipe.write("the-second-token\n")
    waiting.join(30)
    assert told == ["the-second-token"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"from_env": "X", "ttl": 5}, "ttl: can be used only with from_command"),
        ({"from_env": "X", "field": "a"}, "field: can be used only with from_file and from_command"),
        ({"from_keyring": ["only-one"]}, "a service and a user name"),
        ({"from_command": []}, "empty command"),
        ({"from_env": "sk-live-0123456789"}, "the name of a variable"),
        ({}, "exactly one of value, from_env, from_file, from_command, from_keyring"),
    ],
)
def test_mistakes_are_errors_at_the_start(fields: dict[str, Any], problem: str) -> None:
    network = Network.read({"secrets": {"KEY": {"hosts": [API], **fields}}})
    with pytest.raises(ConfigError, match=problem):
        check(network.secrets["KEY"], "network.secrets.KEY")


def test_a_program_that_prints_a_secret_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    first = Network(secrets={"KEY": Secret(value="sk-0123456789", hosts=[API])})
    gate = GateThread({}, first, sandbox_id="x", emit=print, record=print, dial=lambda address, port: socket.socket())
    gate.interception()
    then = Network(secrets={"KEY": Secret(from_command=["cat", str(pipe)], hosts=[API])})
    updating = threading.Thread(target=gate.update, args=(then,))
    updating.start()
    with open(pipe, "w") as writing:  # opened when the program runs
        found: list[object] = []
        asking = threading.Thread(target=lambda: found.append(gate.interception()), daemon=True)
        asking.start()
        asking.join(20)
        assert found, "what the gate's own thread needs for every connection waits for the program"
        writing.write("sk-9876543210\n")
    updating.join(60)
    assert gate.network is then
    gate.close()
