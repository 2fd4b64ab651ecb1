"""A sandbox made over RPC from settings of srt: what `agent-sandbox/srt` is made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox import Client, ConfigError
from sandbox.rpc.event_queue import EventQueue


def settings(network: dict[str, Any] | None = None, **filesystem: Any) -> dict[str, Any]:
    lists = {"denyRead": [], "allowWrite": ["."], "denyWrite": [], **filesystem}
    return {"network": {"allowedDomains": [], "deniedDomains": [], **(network or {})}, "filesystem": lists}


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "srt-project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_settings_of_srt_make_a_sandbox(project: Path, rpc: list[str]) -> None:
    (project / "secret").write_text("hidden")
    with Client({"srt": settings(denyRead=[str(project / "secret")])}, command=rpc) as client:
        assert client.exec("echo x > made; cat made").stdout == "x\n"
        assert client.exec("cat secret").stdout == ""
    assert (project / "made").read_text() == "x\n"


def test_an_invalid_setting_is_reported_by_its_own_name(project: Path, rpc: list[str]) -> None:
    with pytest.raises(ConfigError) as problem:
        Client({"srt": settings({"allowedDomains": ["*"]})}, command=rpc)
    assert "allowedDomains" in str(problem.value)
    with pytest.raises(ConfigError):
        Client({"srt": []}, command=rpc)


def test_other_parameters_beside_them_are_an_error(project: Path, rpc: list[str]) -> None:
    with pytest.raises(ConfigError):
        Client({"srt": settings(), "engine": "none"}, command=rpc)


def test_the_network_is_changed_in_the_same_words(project: Path, rpc: list[str]) -> None:
    with Client({"srt": settings()}, command=rpc) as client:
        before = client.exec("curl -s http://listed.test/").stdout
        client._connection.call("update_network", {"srt": settings({"allowedDomains": ["listed.test"]})})
        after = client.exec("curl -s http://listed.test/").stdout
        assert "listed.test" in before and "not allowed" in before
        assert "not allowed" not in after
        with pytest.raises(ConfigError):
            client._connection.call("update_network", {"srt": settings({"allowedDomains": ["*"]})})


def test_the_answer_says_whether_the_lists_still_name_the_same_files(project: Path, rpc: list[str]) -> None:
    def hold(client: Client) -> bool:
        return bool(client._connection.call("rules_hold", {})["hold"])

    (project / "old").write_text("x")
    lists: dict[str, Any] = {"denyRead": [f"{project}/**/*.key", str(project / "old")], "denyWrite": ["missing"]}
    with Client({"srt": settings(**lists)}, command=rpc) as client:
        assert hold(client), "what reserves a missing name is no file"
        (project / "other").write_text("x")
        assert hold(client)
        (project / "sub").mkdir()
        (project / "sub" / "a.key").write_text("x")
        assert not hold(client)
        (project / "sub" / "a.key").unlink()
        assert hold(client)
        os.replace(project / "other", project / "old")
        assert not hold(client), "a file that was replaced is another one"
    with Client({"filesystem": {"root": str(project)}}, command=rpc) as client:
        assert not hold(client), "nobody has looked"


def test_events_of_a_type_can_be_waited_for() -> None:
    import threading

    go, heard = threading.Event(), []

    def deliver(happened: dict[str, Any]) -> None:
        go.wait()
        heard.append(happened["type"])

    queue = EventQueue(deliver, "test")
    queue.put({"type": "network"})
    queue.settle(("network",), 0.01)
    assert heard == [], "it did not wait longer than it was told"
    queue.settle(("file",), 60)
    threading.Timer(0.01, go.set).start()
    queue.settle(("network",), 60)
    assert heard == ["network"]
    queue.close(60)
