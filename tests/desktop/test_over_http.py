"""The specification's paths, and the same desktop over JSON-RPC, from a client and from asyncio."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import AsyncSandbox, Sandbox
from tests.desktop.desks import pixels, until
from tests.server.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("h"))
    assert server.http.post("/api/sandbox/start").status_code == 200
    yield server
    server.end()


def test_every_path_of_the_specification_answers_in_its_shape(served: Served) -> None:
    http = served.http
    able = http.get("/api/sandbox/capabilities").json()
    for name in ("screenshot", "audioRecord", "audioPlay", "computerUse", "windowList", "shell"):
        assert able[name]["available"] is True, name
    picture = http.get("/api/sandbox/screen/screenshot")
    assert picture.headers["content-type"] == "image/png"
    assert pixels(picture.content)[:2] == (1280, 800)
    told = http.post("/api/sandbox/screen/screenshot", json={"x": 1, "y": 2, "width": 30, "height": 40}).json()
    assert {**told, "data": ""} == {"format": "png", "encoding": "base64", "width": 30, "height": 40, "data": ""}
    assert pixels(base64.b64decode(told["data"]))[:2] == (30, 40)
    assert http.post("/api/sandbox/screen/screenshot").json()["width"] == 1280
    assert http.get("/api/sandbox/screen/windows").json() == {"windows": []}
    place = {"x": 5, "y": 6}
    for path, body in (
        ("computer/click", {**place, "button": "right"}), ("computer/double-click", place), ("computer/move", place),
        ("computer/drag", {**place, "toX": 50, "toY": 60}), ("computer/scroll", {**place, "dy": -1}),
        ("computer/type", {"text": "é"}), ("computer/keypress", {"keys": "escape"}),
    ):  # fmt: skip
        answer = http.post(f"/api/sandbox/{path}", json=body)
        assert (answer.status_code, answer.json()) == (200, {"success": True}), path
    told = http.post("/api/sandbox/audio/record", json={"durationMs": 250}).json()
    assert (told["format"], told["encoding"], told["durationMs"]) == ("wav", "base64", 250)
    wav = base64.b64decode(told["data"])
    assert wav[:4] == b"RIFF" and len(wav) == 44 + 48000 // 4 * 4
    assert http.post("/api/sandbox/audio/play", json={"data": told["data"]}).json() == {"success": True}


def test_what_is_out_of_bounds_is_the_clients_mistake(served: Served) -> None:
    for path, body in (
        ("computer/click", {"x": -1, "y": 0}), ("computer/click", {"x": 5000, "y": 0}),
        ("computer/type", {"text": "x" * 4097}), ("computer/keypress", {"keys": "x" * 129}),
        ("computer/keypress", {"keys": "nokey"}), ("audio/record", {"durationMs": 249}),
        ("audio/record", {"durationMs": 30001}), ("audio/play", {"data": "!"}), ("computer/type", {"text": "\u0001"}),
    ):  # fmt: skip
        assert served.http.post(f"/api/sandbox/{path}", json=body).status_code == 400, (path, body)


def test_a_token_that_may_only_read_sees_no_screen(served: Served) -> None:
    with served.limited("read") as reader:
        assert reader.get("/api/sandbox/screen/screenshot").status_code == 403
        assert reader.post("/api/sandbox/computer/type", json={"text": "x"}).status_code == 403


def test_a_client_in_another_process_drives_the_same_screen(sandbox: Sandbox) -> None:
    with Sandbox.attach(sandbox.id) as client:
        client.desktop.start()
        client.spawn(["xterm", "-T", "note", "-geometry", "120x40+0+0", "-e", "cat > /tmp/note"], keep="note")
        until(lambda: client.exists("/tmp/note") and client.desktop.windows())
        client.desktop.click(400, 300)
        client.desktop.type("über\n")
        until(lambda: client.desktop.screenshot() == sandbox.desktop.screenshot())
        client.desktop.keypress("ctrl+d")
        until(lambda: not sandbox.desktop.windows())
        assert client.read_text("/tmp/note") == "über\n"
        assert client.desktop.record_audio(0.25)[:4] == b"RIFF"
        assert client.desktop.act({"action": "cursor_position"}) == (400, 300)


def test_an_asyncio_program_has_the_same_methods(tmp_path: Path) -> None:
    async def use() -> tuple[bytes, tuple[int, int]]:
        async with AsyncSandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
            await sandbox.desktop.move(3, 4)
            return await sandbox.desktop.screenshot((0, 0, 64, 48)), await sandbox.desktop.pointer()

    picture, place = asyncio.run(use())
    assert pixels(picture)[:2] == (64, 48) and place == (3, 4)


def test_the_async_desktop_lacks_nothing() -> None:
    from sandbox.async_desktop import AsyncDesktop
    from sandbox.desktop.methods import DesktopMethods

    assert {one for one in vars(DesktopMethods) if one[0] != "_"} == {
        one for one in vars(AsyncDesktop) if one[0] != "_"
    }
