"""`browser.image`: real Chromium in a sandbox of its own, beside the one that it belongs to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, sync_playwright

from sandbox import Sandbox
from sandbox.config.home import home
from sandbox.errors import ConfigError, Denied, SandboxError
from sandbox.registry.registry import find
from tests.desktop.desks import until
from tests.images import making
from tests.server.serving import Served

pytestmark = pytest.mark.walls

CHROMIUM = "/usr/lib/chromium"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    made = tmp_path / "project"
    made.mkdir()
    (made / "page.html").write_text("<title>of the project</title>")
    return made


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A system with a shell and no browser."""
    place = tmp_path_factory.mktemp("bare")
    archive = place / "system.tar"
    archive.write_bytes(making.system())
    (place / "root").mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(place / "root")], check=True)
    return str(place / "root")


@pytest.fixture(scope="module")
def with_chromium(bare: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same system with this machine's Chromium in it, and a file that tells it apart."""
    root = tmp_path_factory.mktemp("chromium") / "root"
    shutil.copytree(bare, root, symlinks=True)
    shutil.copytree(CHROMIUM, f"{root}{CHROMIUM}", symlinks=True)
    for directory in ("/etc/fonts", "/usr/share/fonts/truetype"):
        if os.path.isdir(directory):
            shutil.copytree(directory, f"{root}{directory}", dirs_exist_ok=True, ignore_dangling_symlinks=True)
    needed = subprocess.run(["ldd", f"{CHROMIUM}/chromium"], capture_output=True, text=True, check=True).stdout
    nss = [str(one) for one in Path("/usr/lib").glob("*-linux-gnu/lib*.so*") if one.name.startswith(NSS)]
    for library in {word for word in needed.split() if word.startswith("/")} | set(nss):
        os.makedirs(f"{root}{os.path.dirname(library)}", exist_ok=True)
        shutil.copy(library, f"{root}{library}")
    (root / "usr/own.html").write_text("<title>of the image</title>")
    return str(root)


NSS = ("libsoftokn3", "libfreebl", "libnssckbi", "libnssdbm3", "libsqlite3")  # loaded by name, so ldd shows none


@contextmanager
def page_of(sandbox: Sandbox) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(sandbox.browser().ws_endpoint)
        yield browser.contexts[0].new_page()
        browser.close()


def test_a_sandbox_without_chromium_has_a_browser_of_the_hosts_system_with_the_same_project_and_rules(
    project: Path, bare: str
) -> None:
    config = {"filesystem": {"root": str(project)}, "image": bare, "browser": {"image": "host", "headless": True}}
    with Sandbox(config) as sandbox:
        assert sandbox.exec("command -v chromium || test -e /usr/lib/chromium").exit_code != 0
        assert sandbox.desktop.capabilities()["browser"] is not None
        with page_of(sandbox) as page:
            page.goto(f"file://{project}/page.html")
            assert page.title() == "of the project"
            refused = page.goto("https://denied.example/")
            assert refused is not None and refused.status == 403
        own = sandbox._browser.runs_in
        assert own is not None and own != sandbox.id
        assert find(home(), own).running
    assert not find(home(), own).running


@pytest.mark.desktop
def test_chromium_comes_from_the_image_that_the_browser_has(project: Path, with_chromium: str) -> None:
    config = {"filesystem": {"root": str(project)}, "browser": {"image": with_chromium, "headless": True}}
    with Sandbox(config) as sandbox, page_of(sandbox) as page:
        page.goto("file:///usr/own.html")
        assert page.title() == "of the image"
        assert not sandbox.exists("/usr/own.html")


@pytest.mark.desktop
def test_an_image_without_chromium_and_one_that_does_not_exist_are_told_by_the_settings_name(
    project: Path, bare: str
) -> None:
    with Sandbox({"filesystem": {"root": str(project)}, "browser": {"image": bare}}) as sandbox:
        assert sandbox.desktop.capabilities()["browser"] is None
        with pytest.raises(SandboxError, match="no Chromium inside"):
            sandbox.browser()
    with Sandbox({"filesystem": {"root": str(project)}, "browser": {"image": "nosuch"}}) as sandbox:
        with pytest.raises(ConfigError) as told:
            sandbox.browser()
        assert told.value.path == "browser.image"
        assert sandbox.exec("true").exit_code == 0


@pytest.mark.desktop
def test_a_browsers_sandbox_that_was_ended_is_reported_and_made_again_at_the_same_address(project: Path) -> None:
    states: list[object] = []
    config = {"filesystem": {"root": str(project)}, "browser": {"image": "host", "headless": True}}
    with Sandbox(config) as sandbox:
        sandbox.on_event(lambda one: states.append(one["browser"]["state"]) if one["type"] == "browser" else None)  # type: ignore[index]
        first, before = sandbox.browser(), sandbox._browser.runs_in
        assert before is not None
        subprocess.run([sys.executable, "-m", "sandbox", "kill", before], check=True, capture_output=True)
        until(lambda: "ended" in states)
        assert sandbox.browser() == first
        assert httpx.get(f"{first.cdp_endpoint}/json/version", trust_env=False).status_code == 200
        assert sandbox._browser.runs_in not in (None, before)
        assert states == ["started", "ended", "restarted"]


@pytest.mark.desktop
def test_it_is_paused_and_resumed_with_the_sandbox(project: Path) -> None:
    config = {"filesystem": {"root": str(project)}, "browser": {"image": "host", "headless": True}}
    with Sandbox(config) as sandbox:
        sandbox.browser()
        own = sandbox._browser.own
        assert own is not None
        sandbox.pause()
        with pytest.raises(SandboxError, match="is paused"):
            own.exec("true")
        sandbox.resume()
        assert own.exec("true").exit_code == 0


@pytest.mark.desktop
def test_the_agents_programs_reach_neither_the_browsers_files_nor_its_processes(project: Path) -> None:
    config = {
        "filesystem": {"root": str(project)},
        "browser": {"image": "host", "headless": True},
        "network": {"publish": ["0:8000"]},  # once, although there are two sandboxes
    }
    with Sandbox(config) as sandbox:
        sandbox.browser()
        own = sandbox._browser.own
        assert own is not None and own.ports == [] and len(sandbox.ports) == 1
        own.write_text("/tmp/cookie", "mine")
        assert not sandbox.exists("/tmp/cookie")
        seen = sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
        assert "user-data-dir" not in seen


@pytest.mark.desktop
def test_without_walls_or_when_switched_off_no_second_sandbox_is_made(project: Path) -> None:
    asked = {"filesystem": {"root": str(project)}, "browser": {"image": "host", "enabled": False}}
    with Sandbox(asked) as sandbox:
        with pytest.raises(Denied, match="no browser"):
            sandbox.browser()
        assert sandbox._beside() == []


@pytest.mark.desktop
def test_over_http_the_browsers_sandbox_has_an_id_of_its_own_and_its_screen_can_be_seen(
    project: Path, tmp_path: Path, bare: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"image: {bare}\nbrowser: {{image: host}}\n")
    served = Served(tmp_path / "home", "--port", "0", "--config", str(config))
    try:
        status = served.http.post("/api/sandbox/start").json()
        assert status["browserContainerId"] is None
        told = served.http.get("/api/sandbox/browser").json()
        status = served.http.get("/api/sandbox/status").json()
        assert status["browserContainerId"] not in (None, status["containerId"])
        assert told["noVncEndpoint"].endswith(f"#{status['browserContainerId']}")
        with sync_playwright() as playwright:
            headers = {"Authorization": f"Bearer {served.token}"}
            browser = playwright.chromium.connect_over_cdp(told["wsEndpoint"], headers=headers)
            page = browser.contexts[0].new_page()
            page.set_content("<title>driven</title>")
            assert page.title() == "driven"
            browser.close()
        windows = f"/v1/sandboxes/{status['browserContainerId']}/desktop"
        assert served.http.post(windows, json={"do": "windows"}).json()["windows"]
        served.http.post("/api/sandbox/stop")
        assert not find(str(tmp_path / "home"), status["browserContainerId"]).running
    finally:
        served.end()


@pytest.mark.containers
@pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.root), "podman"])
def test_a_browser_has_a_container_of_its_own(
    engine: str, project: Path, bare: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(engine)
    config = {
        "engine": engine,
        "filesystem": {"root": str(project)},
        "image": bare,
        "browser": {"image": "host", "headless": True},
    }
    with Sandbox(config) as sandbox, page_of(sandbox) as page:
        page.goto(f"file://{project}/page.html")
        assert page.title() == "of the project"
        own = sandbox._browser.own
        assert own is not None and own.engine == engine
