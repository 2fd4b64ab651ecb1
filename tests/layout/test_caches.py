"""Package caches: tenants read the person's, what they add is kept for their project, and nobody else ever sees it."""

from __future__ import annotations

import http.server
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Config, Sandbox
from sandbox.config.caches import TABLE, TOOLS
from sandbox.engines.choose import with_mode_defaults
from sandbox.errors import ConfigError
from sandbox.layout.cache_sets import sets
from sandbox.layout.caches import project_of

pytestmark = pytest.mark.walls

PLACES = {
    "pip": ".cache/pip",
    "uv": ".cache/uv",
    "npm": ".npm/_cacache",
    "pnpm": ".local/share/pnpm/store",
    "cargo": ".cargo/registry",
    "go": "go/pkg/mod",
    "maven": ".m2/repository",
}
WHICH = "cd; ls -d .npm/_cacache .m2/repository 2>/dev/null; true"
SECRETS = (".npmrc", ".npm/_logs/x", ".cargo/credentials.toml", ".cargo/git/db/x", ".m2/settings.xml", ".cache/other/x")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with every cache, and secrets beside them."""
    home = tmp_path / "person"
    for tool, place in PLACES.items():
        (home / place).mkdir(parents=True)
        (home / place / "held").write_text(tool)
    for secret in SECRETS:
        (home / secret).parent.mkdir(parents=True, exist_ok=True)
        (home / secret).write_text("token")
    for name in [name for one in TABLE for name in one.variables] + ["XDG_CACHE_HOME", "XDG_DATA_HOME"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SANDBOX_HOME", str(home / ".sandbox"))
    return home


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


def inside(project: Path, script: str, **config: object) -> str:
    with Sandbox({"filesystem": {"root": str(project)}, **config}) as sandbox:
        result = sandbox.exec(script)
        assert result.exit_code == 0, result.stderr
        return str(result.stdout)


def cli(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox", *words]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def layers(home: Path) -> list[str]:
    return [name for one in sets(str(home / ".sandbox")) for name in os.listdir(one) if name not in ("lock", "project")]


@pytest.mark.parametrize("tool", PLACES)
def test_a_tenant_finds_the_persons_cache_at_its_place(project: Path, home: Path, tool: str) -> None:
    assert inside(project, f"cat ~/{PLACES[tool]}/held") == tool


def test_every_tool_is_tried_here() -> None:
    assert set(PLACES) == set(TOOLS)


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("PIP_CACHE_DIR", ""), ("UV_CACHE_DIR", ""), ("npm_config_cache", "/_cacache"),
        ("NPM_CONFIG_CACHE", "/_cacache"), ("npm_config_store_dir", ""), ("CARGO_HOME", "/registry"),
        ("GOMODCACHE", ""), ("GOPATH", "/pkg/mod"),
    ],
)  # fmt: skip
def test_the_persons_own_variables_are_followed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str
) -> None:
    moved = tmp_path / "moved"
    (moved / below.lstrip("/")).mkdir(parents=True)
    (moved / below.lstrip("/") / "held").write_text("moved")
    (moved / "beside").write_text("token")
    monkeypatch.setenv(variable, str(moved))
    said = inside(project, f'cat "${variable}{below}/held"; echo new > "${variable}{below}/new"; ls "${variable}"')
    assert said.startswith("moved")
    assert below == "" or "beside" not in said
    assert not (moved / below.lstrip("/") / "new").exists()


def test_xdg_directories_are_followed(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "xdg/pip").mkdir(parents=True)
    (tmp_path / "xdg/pip/held").write_text("xdg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert inside(project, "cat $XDG_CACHE_HOME/pip/held") == "xdg"


def test_nothing_beside_a_cache_is_shown(project: Path, home: Path) -> None:
    for secret in SECRETS:
        assert inside(project, f"cat ~/{secret} 2>/dev/null || echo none") == "none\n"
    assert "token" not in inside(project, "grep -r token ~ 2>/dev/null || true")


@pytest.mark.parametrize("place", ["go/pkg/mod/cache/vcs", ".cache/uv/git-v0"])
def test_repositories_in_a_cache_are_hidden_because_their_addresses_may_hold_tokens(
    project: Path, home: Path, place: str
) -> None:
    (home / place / "x").mkdir(parents=True)
    (home / place / "x/config").write_text("url = https://token@example.org")
    assert inside(project, f"ls -A ~/{place}; echo new > ~/{place}/new") == ""
    assert os.listdir(home / place) == ["x"]


def test_what_is_added_is_kept_for_the_project_and_never_reaches_the_person(project: Path, home: Path) -> None:
    inside(project, "echo new > ~/.npm/_cacache/new; echo changed > ~/.npm/_cacache/held; rm ~/.m2/repository/held")
    assert inside(project, "cat ~/.npm/_cacache/new ~/.npm/_cacache/held; ls ~/.m2/repository") == "new\nchanged\n"
    assert sorted(os.listdir(home / ".npm/_cacache")) == ["held"]
    assert (home / ".npm/_cacache/held").read_text() == "npm"
    assert (home / ".m2/repository/held").read_text() == "maven"


def test_another_project_never_sees_it(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    inside(project, "echo new > ~/.npm/_cacache/new; echo changed > ~/.npm/_cacache/held")
    assert inside(other, "cat ~/.npm/_cacache/held; ls ~/.npm/_cacache") == "npmheld\n"


def test_the_persons_new_packages_appear(project: Path, home: Path) -> None:
    inside(project, "echo new > ~/.npm/_cacache/new")
    (home / ".npm/_cacache/later").write_text("later")
    assert inside(project, "cat ~/.npm/_cacache/later; ls ~/.npm/_cacache") == "laterheld\nlater\nnew\n"


def test_a_build_cache_is_the_projects_own_from_the_start(project: Path, home: Path) -> None:
    (home / ".cache/go-build").mkdir()
    (home / ".cache/go-build/object").write_text("made from another project of the person's")
    assert inside(project, "ls -A ~/.cache/go-build; echo 1 > ~/.cache/go-build/mine") == ""
    assert inside(project, "ls -A ~/.cache/go-build") == "mine\n"
    assert os.listdir(home / ".cache/go-build") == ["object"]


def test_none_are_shown_when_none_are_asked_for(project: Path, home: Path) -> None:
    assert inside(project, WHICH, caches=[]) == ""
    assert inside(project, WHICH, caches=["npm"]) == ".npm/_cacache\n"
    with pytest.raises(ConfigError, match="no cache is known for 'nmp'"):
        Sandbox({"caches": ["nmp"]})


def test_where_no_cache_exists_nothing_is_made(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nobody").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "nobody/.sandbox"))
    assert inside(project, "ls -A ~") == ""
    assert not (tmp_path / "nobody/.sandbox/caches").exists()


def test_a_projects_file_can_only_take_caches_away(project: Path) -> None:
    (project / ".sandbox").mkdir()
    (project / ".sandbox/config.yaml").write_text("caches: [npm]\n")
    assert cli(project, "run", "--", "sh", "-c", WHICH).stdout == ".npm/_cacache\n"


def test_what_the_person_denies_or_says_otherwise_holds(project: Path, home: Path) -> None:
    root = str(project)
    assert inside(project, WHICH, filesystem={"root": root, "deny_read": ["~/.npm"]}) == ".m2/repository\n"
    denied = {"root": root, "deny_read": ["~/.npm/_cacache/h*"]}
    assert inside(project, "cat ~/.npm/_cacache/held 2>/dev/null || echo no", filesystem=denied) == "no\n"
    shown = {"root": root, "allow_read": ["~/.npm/_cacache"]}
    assert inside(project, "touch ~/.npm/_cacache/x 2>/dev/null || echo no", filesystem=shown) == "no\n"


def test_the_strictest_mode_has_none() -> None:
    assert with_mode_defaults(Config.read({"mode": "max"})).caches == []


def test_a_home_that_is_the_project_has_none(home: Path) -> None:
    (home / ".sandbox").mkdir(exist_ok=True)
    assert "held" not in inside(home, "ls -A ~/.npm/_cacache 2>/dev/null || true")


def test_a_home_that_hides_its_layers_among_caches_still_works(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """overlayfs refuses a lower layer that holds the upper one."""
    monkeypatch.setenv("SANDBOX_HOME", str(home / ".cache/sandbox"))
    assert inside(project, "cat ~/.cache/pip/held ~/.npm/_cacache/held; echo 1 > ~/.cache/pip/new") == "pipnpm"
    assert inside(project, "cat ~/.cache/pip/new") == "1\n"


def test_directories_of_one_name_are_not_mixed(project: Path, home: Path) -> None:
    """Caches share one overlay: what is beside one must not show up in another."""
    for place in (".npm/repository", ".m2/_cacache", ".cache/registry", ".cargo/pip"):
        (home / place).mkdir()
        (home / place / "foreign").write_text("x")
    assert inside(project, "ls ~/.npm/_cacache ~/.m2/repository ~/.cargo/registry ~/.cache/pip").count("held") == 4
    assert "foreign" not in inside(project, "ls -AR ~")


def test_a_home_with_a_long_and_strange_path_works(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path.joinpath(*("x:\\,=" * 20 for _ in range(3)))
    (far / ".npm/_cacache").mkdir(parents=True)
    (far / ".npm/_cacache/held").write_text("far")
    monkeypatch.setenv("HOME", str(far))
    assert inside(project, "cat ~/.npm/_cacache/held") == "far"


def test_where_the_kernel_cannot_make_it_the_sandbox_starts_without(
    project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside(project, "true")
    [kept] = sets(str(home / ".sandbox"))
    Path(kept, "together/upper").rmdir()
    Path(kept, "together/upper").write_text("no directory")
    assert inside(project, "cat ~/.npm/_cacache/held 2>/dev/null; mkdir -p ~/.npm/_cacache; echo works") == "works\n"
    moved = tmp_path / "moved"
    moved.mkdir()
    monkeypatch.setenv("PIP_CACHE_DIR", str(moved))
    assert inside(project, "echo 1 > $PIP_CACHE_DIR/new; echo works") == "works\n"
    assert os.listdir(moved) == []


def test_the_mount_table_does_not_reveal_where_layers_are(project: Path, home: Path) -> None:
    assert str(home / ".sandbox") not in inside(project, "cat /proc/self/mountinfo")


# -- several, and after a crash


def test_of_two_sandboxes_in_one_project_the_first_has_the_kept_layer(project: Path, home: Path) -> None:
    asked = {"filesystem": {"root": str(project)}}
    inside(project, "echo 0 > ~/.npm/_cacache/zero")
    with Sandbox(asked) as first, Sandbox(asked) as second:
        first.exec("echo 1 > ~/.npm/_cacache/one", check=True)
        second.exec("echo 2 > ~/.npm/_cacache/two", check=True)
        assert first.exec("ls ~/.npm/_cacache").stdout == "held\none\nzero\n"
        assert second.exec("ls ~/.npm/_cacache").stdout == "held\ntwo\n"
        own = home / ".sandbox/vms" / second.id / "caches"
        assert own.exists()
    assert not own.exists()
    assert inside(project, "ls ~/.npm/_cacache") == "held\none\nzero\n"


def test_a_killed_owner_leaves_a_layer_that_the_next_run_uses(project: Path) -> None:
    script = "echo 1 > ~/.npm/_cacache/one; echo ready; read forever"
    owner = subprocess.Popen(
        [sys.executable, "-m", "sandbox", "run", "--", "sh", "-c", script],
        cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None and owner.stdout.readline() == "ready\n"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert inside(project, "cat ~/.npm/_cacache/one") == "1\n"


def test_a_directory_that_got_a_removed_projects_number_does_not_get_its_layer(project: Path, home: Path) -> None:
    inside(project, "echo 1 > ~/.npm/_cacache/one; echo 1 > ~/.m2/repository/one")
    [kept] = sets(str(home / ".sandbox"))
    Path(kept, "project").write_text("/another/project")
    assert inside(project, "ls ~/.npm/_cacache ~/.m2/repository").count("one") == 0
    assert project_of(kept) == str(project)


# -- looking after them


def test_prune_removes_the_layers_of_projects_that_are_gone(project: Path, tmp_path: Path, home: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    inside(project, "echo 1 > ~/.npm/_cacache/one")
    inside(other, "echo 1 > ~/.npm/_cacache/one; mkdir ~/.npm/_cacache/closed; chmod 000 ~/.npm/_cacache/closed")
    other.rmdir()
    assert cli(project, "prune").returncode == 0
    assert [project_of(one) for one in sets(str(home / ".sandbox"))] == [str(project)]
    assert inside(project, "cat ~/.npm/_cacache/one") == "1\n"


def test_they_can_be_listed_and_cleared_but_not_under_a_running_sandbox(project: Path, home: Path) -> None:
    inside(project, "head -c 3000000 /dev/zero > ~/.npm/_cacache/big")
    [told] = json.loads(cli(project, "caches", "list", "--json").stdout)
    assert (told["project"], told["bytes"] >= 3_000_000) == (str(project), True)
    assert f"2.9 MB  {project}\n" in cli(project, "caches", "list").stdout
    with Sandbox({"filesystem": {"root": str(project)}}):
        busy = cli(project, "caches", "clear")
        assert (busy.returncode, "a sandbox uses the caches" in busy.stderr) == (125, True)
    assert cli(project, "caches", "clear").returncode == 0
    assert list(sets(str(home / ".sandbox"))) == []
    assert (home / ".npm/_cacache/held").exists()


# -- with the real tools


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    """A package registry on the loopback; the paths that it was asked for."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in (
            ("package.json", '{"name": "left", "version": "1.0.0"}'),
            ("index.js", "module.exports = 42"),
        ):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    asked: list[str] = []

    class Registry(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = packed.getvalue()
            if not self.path.endswith(".tgz"):
                dist = {"tarball": f"{address}/left/-/left-1.0.0.tgz"}
                version = {"name": "left", "version": "1.0.0", "dist": dist}
                described = {"name": "left", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
                body = json.dumps(described).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "max-age=3600")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield address, asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_npm_inside_installs_from_the_persons_cache_without_the_network(
    project: Path, tmp_path: Path, home: Path, registry: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked = registry
    (home / ".npmrc").unlink()
    (home / ".npm/_cacache/held").unlink()
    monkeypatch.setenv("npm_config_registry", address)
    monkeypatch.setenv("npm_config_audit", "false")
    outside = tmp_path / "outside"
    for place in (outside, project):
        place.mkdir(exist_ok=True)
        (place / "package.json").write_text('{"name": "x", "version": "1.0.0"}')
    subprocess.run(["npm", "install", "left"], cwd=outside, check=True, capture_output=True)
    before = len(asked)
    assert before > 0
    said = inside(project, "npm install --prefer-offline --no-update-notifier left >&2; node -p 'require(\"left\")'")
    assert (said, len(asked)) == ("42\n", before)


def test_go_inside_builds_with_the_persons_modules_without_the_network(
    project: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = tmp_path / "proxy/example.org/left/@v"
    proxy.mkdir(parents=True)
    (proxy / "list").write_text("v1.0.0\n")
    (proxy / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
    (proxy / "v1.0.0.mod").write_text("module example.org/left\n")
    with zipfile.ZipFile(proxy / "v1.0.0.zip", "w") as packed:
        packed.writestr("example.org/left@v1.0.0/go.mod", "module example.org/left\n")
        packed.writestr("example.org/left@v1.0.0/left.go", 'package left\n\nfunc Left() string { return "42" }\n')
    (project / "go.mod").write_text("module x\n\nrequire example.org/left v1.0.0\n")
    (project / "main.go").write_text(
        'package main\n\nimport "example.org/left"\n\nfunc main() { println(left.Left()) }\n'
    )
    for name, value in (
        ("GOFLAGS", "-mod=mod"),
        ("GONOSUMDB", "*"),
        ("GOTOOLCHAIN", "local"),
        ("GOPROXY", f"file://{tmp_path}/proxy"),
    ):
        monkeypatch.setenv(name, value)
    subprocess.run(["go", "mod", "download"], cwd=project, check=True, capture_output=True)
    monkeypatch.setenv("GOPROXY", "off")
    assert inside(project, "go run . 2>&1") == "42\n"
