"""Every path of the specification, by its name, against a real server, for the managed sandbox with any engine.

A subclass names the engine and gives `home_environment`, the variables that the server finds it by.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desktop.desks import pixels, until
from tests.server.serving import Served
from tests.signing.keys import ADDRESS, CHAIN, ETHER, POLICY, sender, transaction
from tests.signing.signers import RunningSigner

CAPABILITIES = {"screenshot", "audioRecord", "audioPlay", "computerUse", "windowList", "browser", "shell"}
PLATFORM = {
    *("platform", "arch", "dockerInstalled", "dockerRunning", "dockerAvailable", "appleContainerAvailable", "wsl2"),
    "recommended",
}
STATUS = {"state", "mode", "containerId", "browserContainerId", "engine", "health"}
BROWSER = {"enabled": True, "autoStartTimeoutMs": 300_000}
PATIENCE = 300.0  # seconds: a machine that is emulated takes its time


class Specification:
    """One server with one managed sandbox for all of them; each leaves it ready."""

    engine: str

    @pytest.fixture(scope="class")
    @classmethod
    def home_environment(cls) -> dict[str, str]:
        return {}

    @pytest.fixture(scope="class")
    @classmethod
    def managed(
        cls, tmp_path_factory: pytest.TempPathFactory, home_environment: dict[str, str]
    ) -> Iterator[tuple[Served, RunningSigner]]:
        signer = RunningSigner(Path(tmp_path_factory.mktemp("h")) / "s", POLICY)
        server = Served(signer.home, env=home_environment)
        server.http.timeout = PATIENCE
        defined = server.http.put("/v1/managers/default", json={"engineType": cls.engine, "browser": BROWSER})
        assert defined.status_code == 200, defined.text
        yield server, signer
        server.end()
        signer.end()

    @pytest.fixture
    def ready(self, managed: tuple[Served, RunningSigner]) -> Served:
        server = managed[0]
        if server.http.get("/api/sandbox/status").json()["state"] != "ready":
            told = server.http.post("/api/sandbox/start")
            assert told.json().get("state") == "ready", told.text
        return server

    # -- the sandbox

    def test_get_api_sandbox_status(self, ready: Served) -> None:
        told = ready.http.get("/api/sandbox/status").json()
        assert set(told) == STATUS
        assert (told["state"], told["mode"], told["engine"]) == ("ready", "standard", self.engine)
        assert told["containerId"].startswith("vm-")
        assert told["health"]["status"] in ("unknown", "healthy"), told["health"]

    def test_get_api_sandbox_events(self, ready: Served) -> None:
        events = ready.http.get("/api/sandbox/events").json()["events"]
        assert 0 < len(events) <= 100
        assert all({"timestamp", "type", "detail"} <= set(one) for one in events)

    def test_get_api_sandbox_platform(self, ready: Served) -> None:
        told = ready.http.get("/api/sandbox/platform").json()
        assert set(told) >= PLATFORM
        works = {one["engine"]: one["works"] for one in told["candidates"]}
        assert works.get(self.engine, True) is True  # a machine is nothing that `auto` takes
        assert told["recommended"] == "bubblewrap" and told["reason"]

    def test_get_api_sandbox_capabilities(self, ready: Served) -> None:
        told = ready.http.get("/api/sandbox/capabilities").json()
        assert set(told) >= CAPABILITIES
        assert all(set(one) == {"available", "tool"} for one in told.values())
        assert {name for name in CAPABILITIES if told[name]["available"]} == CAPABILITIES

    def test_get_api_sandbox_browser(self, ready: Served) -> None:
        told = ready.http.get("/api/sandbox/browser")
        assert told.status_code == 200, told.text
        assert set(told.json()) == {"cdpEndpoint", "wsEndpoint", "noVncEndpoint"}
        version = ready.http.get(f"{told.json()['cdpEndpoint']}/json/version").json()
        assert version["webSocketDebuggerUrl"] == told.json()["wsEndpoint"]
        status = ready.http.get("/api/sandbox/status").json()
        assert status["browserContainerId"] == status["containerId"]  # it runs in the sandbox's own

    def test_post_api_sandbox_exec(self, ready: Served) -> None:
        told = ready.http.post("/api/sandbox/exec", json={"command": "echo out; echo err >&2; exit 3"})
        assert told.status_code == 200
        body = told.json()
        assert set(body) == {"exitCode", "stdout", "stderr", "durationMs", "executedInSandbox"}
        assert (body["exitCode"], body["stdout"], body["stderr"]) == (3, "out\n", "err\n")
        assert body["executedInSandbox"] is True
        there = ready.http.post("/api/sandbox/exec", json={"command": "pwd", "workdir": "/tmp"}).json()
        assert there["stdout"] == "/tmp\n"
        late = ready.http.post("/api/sandbox/exec", json={"command": "sleep 600", "timeoutMs": 200}).json()
        assert late["exitCode"] != 0

    def test_post_api_sandbox_start_stop_and_recover(self, ready: Served) -> None:
        assert ready.http.post("/api/sandbox/start").status_code == 409
        assert ready.http.post("/api/sandbox/exec", json={"command": "echo kept > kept"}).json()["exitCode"] == 0
        assert ready.http.post("/api/sandbox/stop").json()["state"] == "stopped"
        refused = ready.http.post("/api/sandbox/exec", json={"command": "true"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "wrong_state")
        assert ready.http.post("/api/sandbox/start").json()["state"] == "ready"
        assert ready.http.post("/api/sandbox/stop").json()["state"] == "stopped"
        assert ready.http.post("/api/sandbox/recover").json()["state"] == "ready"
        assert ready.http.post("/api/sandbox/exec", json={"command": "cat kept"}).json()["stdout"] == "kept\n"

    def test_post_api_sandbox_docker_start(self, ready: Served) -> None:
        with ready.limited("read", "create", "exec", "kill") as other:
            assert other.post("/api/sandbox/docker/start").status_code == 403
        if ready.http.get("/api/sandbox/platform").json()["dockerRunning"]:  # else it would start this machine's
            assert ready.http.post("/api/sandbox/docker/start").status_code == 200

    # -- screen, keyboard, mouse, sound

    def test_get_and_post_api_sandbox_screen_screenshot(self, ready: Served) -> None:
        picture = ready.http.get("/api/sandbox/screen/screenshot")
        assert picture.headers["content-type"] == "image/png"
        assert pixels(picture.content)[:2] == (1280, 800)
        told = ready.http.post("/api/sandbox/screen/screenshot", json={"x": 1, "y": 2, "width": 30, "height": 40})
        shape = {"format": "png", "encoding": "base64", "width": 30, "height": 40, "data": ""}
        assert {**told.json(), "data": ""} == shape
        assert pixels(base64.b64decode(told.json()["data"]))[:2] == (30, 40)

    def test_api_sandbox_screen_windows_and_computer_click_type_and_keypress(self, ready: Served) -> None:
        """What is typed into a window arrives in the file that its program writes."""
        ready.http.get("/api/sandbox/screen/screenshot")
        program = "xterm -T typed -geometry 200x50+0+0 -e 'cat > /tmp/typed'"
        opened = {"command": f"rm -f /tmp/typed; setsid {program} >/dev/null 2>&1 </dev/null &"}
        assert ready.http.post("/api/sandbox/exec", json=opened).json()["exitCode"] == 0
        until(lambda: "typed" in {one["title"] for one in self._windows(ready)}, PATIENCE)
        exists = {"command": "test -e /tmp/typed"}
        until(lambda: ready.http.post("/api/sandbox/exec", json=exists).json()["exitCode"] == 0, PATIENCE)
        for path, body in (
            ("click", {"x": 300, "y": 200}), ("type", {"text": "größe 你好\n"}), ("keypress", {"keys": "ctrl+d"})
        ):  # fmt: skip
            answer = ready.http.post(f"/api/sandbox/computer/{path}", json=body)
            assert (answer.status_code, answer.json()) == (200, {"success": True}), path
        until(lambda: "typed" not in {one["title"] for one in self._windows(ready)}, PATIENCE)
        read = ready.http.post("/api/sandbox/exec", json={"command": "cat /tmp/typed"}).json()
        assert read["stdout"] == "größe 你好\n"

    def _windows(self, ready: Served) -> list[dict[str, Any]]:
        windows: list[dict[str, Any]] = ready.http.get("/api/sandbox/screen/windows").json()["windows"]
        assert all(set(one) == {"id", "title", "app"} for one in windows)
        return windows

    def test_post_api_sandbox_audio_record_and_play(self, ready: Served) -> None:
        told = ready.http.post("/api/sandbox/audio/record", json={"durationMs": 250}).json()
        assert (told["format"], told["encoding"], told["durationMs"]) == ("wav", "base64", 250)
        assert base64.b64decode(told["data"])[:4] == b"RIFF"
        assert ready.http.post("/api/sandbox/audio/play", json={"data": told["data"]}).json() == {"success": True}

    # -- signing

    def test_api_sandbox_sign_address_pending_approve_and_reject(self, ready: Served) -> None:
        with ready.limited("sign", "read") as agent:
            assert agent.get("/api/sandbox/sign/address").json() == {"address": ADDRESS, "chains": [CHAIN]}
            asked = {"createdAt": 1700000000000, **transaction()}
            signed = agent.post("/api/sandbox/sign", json={"requestId": "cheap", **asked})
            assert (signed.status_code, sender(signed.json()["signature"])) == (200, ADDRESS)
            for id in ("yes", "no"):
                dear = {"requestId": id, **asked, "value": str(ETHER // 20)}
                assert agent.post("/api/sandbox/sign", json=dear).status_code == 202
            pending = agent.get("/api/sandbox/sign/pending").json()["pending"]
            assert {one["requestId"] for one in pending} == {"yes", "no"}
            assert agent.post("/api/sandbox/sign/approve", json={"requestId": "yes"}).status_code == 403
        told = ready.http.post("/api/sandbox/sign/approve", json={"requestId": "yes"}).json()
        assert (told["success"], told["humanConfirmed"]) == (True, True)
        told = ready.http.post("/api/sandbox/sign/reject", json={"requestId": "no"}).json()
        assert (told["success"], told["humanConfirmed"]) == (False, False)
        assert ready.http.get("/api/sandbox/sign/pending").json() == {"pending": []}

    # -- the record

    def test_get_api_audit_feed(self, ready: Served) -> None:
        asked: dict[str, Any] = {"type": "sandbox_lifecycle", "severity": "info", "sinceMs": 0, "limit": 5}
        told = ready.http.get("/api/audit/feed", params=asked).json()
        assert set(told) == {"entries", "totalBuffered", "replayed"}
        assert 0 < len(told["entries"]) <= 5
        assert {one["type"] for one in told["entries"]} == {"sandbox_lifecycle"}
        for wrong in (0, 1001, "x"):
            assert ready.http.get("/api/audit/feed", params={"limit": wrong}).status_code == 400
