"""A secret's value reaches no error, terminal, argument list, registry or record, wherever somebody wrote it."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sandboxes import Command

pytestmark = pytest.mark.walls

CANARY = "sk-live-Canary0123/45+67"
FORMS = (CANARY, CANARY.encode().hex(), base64.b64encode(CANARY.encode()).decode()[:16], json.dumps(CANARY)[1:-1])
HOST = ["api.example.com"]


def secrets(entry: Any) -> dict[str, Any]:
    return {"network": {"secrets": {"KEY": entry}}}


MISTAKES: dict[str, Any] = {
    "a plain string for a secret": secrets(CANARY),
    "a list for a secret": secrets([CANARY]),
    "a string for all of them": {"network": {"secrets": CANARY}},
    "a list of them": {"network": {"secrets": [CANARY]}},
    "a value that is a list": secrets({"value": [CANARY], "hosts": HOST}),
    "not ASCII": secrets({"value": f"ü{CANARY}", "hosts": HOST}),
    "a space at the end": secrets({"value": f"{CANARY} ", "hosts": HOST}),
    "two lines": secrets({"value": f"{CANARY}\n{CANARY}", "hosts": HOST}),
    "no hosts": secrets({"value": CANARY}),
    "the value as host": secrets({"value": CANARY, "hosts": [CANARY]}),
    "the value as hosts": secrets({"value": CANARY, "hosts": CANARY}),
    "the value as place": secrets({"value": CANARY, "hosts": HOST, "in": [CANARY]}),
    "the value as key": secrets({CANARY: "x", "hosts": HOST}),
    "the value as placeholder": secrets({"value": CANARY, "hosts": HOST, "placeholder": CANARY}),
    "the value as variable": secrets({"from_env": CANARY, "hosts": HOST}),
    "the value as file": secrets({"from_file": CANARY, "hosts": HOST}),
    "the value as program": secrets({"from_command": [CANARY], "hosts": HOST}),
    "two sources": secrets({"value": CANARY, "from_env": "X", "hosts": HOST}),
    "exclusive": secrets({"value": CANARY, "hosts": HOST, "exclusive": True}),
    "a variable that is a list": {"environment": {"set": {"TOKEN": [CANARY]}}},
    "variables that are a string": {"environment": {"set": CANARY}},
    "the script's secrets": {"network": {"policy_secrets": {"a": [CANARY]}}},
    "the script's secrets, one string": {"network": {"policy_secrets": CANARY}},
    "a proxy's password": {
        "network": {"upstream_proxy": f"https://me:{CANARY}@proxy.example/x", "allowed_hosts": HOST}
    },
    "a proxy that is a list": {"network": {"upstream_proxy": [CANARY]}},
    "a whole section": {"network": CANARY},
}


def told(*outputs: str) -> str:
    """The first form of the canary that was told, if any."""
    return next((form for form in FORMS for text in outputs if form in text), "")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_secret_is_reported_without_its_value(cli: Command, tmp_path: Path, mistake: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(MISTAKES[mistake]))
    done = cli("run", "--config", str(file), "--", "true")
    assert (done.returncode, told(done.stdout, done.stderr)) == (125, "")


GARBLED = [f"*{CANARY}", f"!{CANARY} x", f"'{CANARY}", f"&{CANARY}", f"@{CANARY}", "12345678901"]


@pytest.mark.parametrize("text", GARBLED)
def test_a_mistake_in_the_file_is_reported_without_the_value(cli: Command, tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"network:\n  secrets:\n    KEY:\n      hosts: [h.example]\n      value: {text}\n")
    done = cli("run", "--config", str(file), "--", "true")
    assert done.returncode == 125
    assert told(done.stderr) == ""
    assert "12345678901" not in done.stderr


def test_setting_a_secret_does_not_show_it(cli: Command) -> None:
    cli("config", "--global", "set", "network.secrets.KEY.hosts", "[h.example]")
    for key, value in (
        ("network.secrets.KEY.value", CANARY),
        ("environment.set.TOKEN", CANARY),
        ("network.upstream_proxy", f"http://me:{CANARY.replace('/', '')}@127.0.0.1:9"),
    ):
        done = cli("config", "--global", "set", key, value)
        assert done.returncode == 0, done.stderr
        assert told(done.stdout, done.stderr) == ""
        assert CANARY.replace("/", "") not in done.stdout
    for action in (["list"], ["show"], ["get", "network.upstream_proxy"], ["get", "network.secrets"]):
        shown = cli("config", "--global", *action).stdout
        assert CANARY.replace("/", "") not in shown
        assert told(shown) == ""


def test_a_detached_owner_keeps_no_value_in_its_arguments_the_registry_or_the_record(
    cli: Command, tmp_path: Path, home: Path
) -> None:
    proxy = CANARY.replace("/", "")
    file = tmp_path / "c.yaml"
    network = {"upstream_proxy": f"http://me:{proxy}@127.0.0.1:9", "policy_secrets": {"a": CANARY}}
    file.write_text(yaml.safe_dump({"network": {**secrets({"value": CANARY, "hosts": HOST})["network"], **network}}))
    command = ["sh", "-c", f": {CANARY}; sleep 1000"]
    done = cli("run", "--config", str(file), "--env", f"MY_TOKEN={CANARY}", "--detach", "--", *command)
    assert done.returncode == 0, done.stderr
    entry = cli("get", done.stdout.strip()).stdout
    pid = json.loads(entry)["pid"]
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    assert "MY_TOKEN=" in arguments
    assert told(entry, arguments.replace("\0", " ")) == ""
    assert proxy not in entry + arguments
    kept = "".join(
        (Path(where) / name).read_text(errors="replace")
        for where, _, names in os.walk(home)
        for name in names
        if (Path(where) / name).is_file() and not (Path(where) / name).is_symlink()  # one leads to the file itself
    )
    assert told(kept) == ""
    assert proxy not in kept
    cli("kill", done.stdout.strip())


def test_the_variable_that_a_secret_is_read_from_does_not_come_in_whatever_its_name_is(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOO_CONN", "nothing-that-looks-so")
    monkeypatch.setenv("FOO_COPY", "x nothing-that-looks-so")
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(secrets({"from_env": "FOO_CONN", "hosts": HOST})))
    done = cli("run", "--config", str(file), "--", "sh", "-c", "env; cat /proc/*/environ")
    assert "PATH=" in done.stdout
    assert "nothing-that-looks-so" not in done.stdout
