"""A sandbox without walls (mode `off`, engine `none`) is the host: tokens without scope `host` do nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.errors import SandboxError
from tests.server.serving import Served

NARROW = ("read", "create", "exec", "files", "apply", "network", "answer", "kill", "audit")  # all but `host`
BOX = "/v1/sandboxes/{id}/"
# What a path may need besides the sandbox's id, so that the request is a complete one.
BODIES: dict[str, dict[str, Any]] = {
    "exec": {"command": "cat SECRET"},
    "desktop": {"do": "start"},
    "mkdir": {"path": "/tmp/x"},
    "remove": {"path": "SECRET"},
    "rename": {"from": "SECRET", "to": "SECRET.2"},
    "chmod": {"path": "SECRET", "mode": 0o777},
    "symlink": {"target": "SECRET", "path": "SECRET.3"},
}
HARMLESS = {  # these see, end, or restrict; none of them runs or reads anything of the host
    *("stats", "processes", "events", "extend", "pause", "resume", "network", "asks"),
    *("changes", "diff", "apply", "discard", "allow"),
}


@pytest.fixture(scope="module")
def unwalled(served: Served) -> Iterator[tuple[str, Path]]:
    """The id of a managed sandbox in mode `off`, and a file of the host."""
    secret = served.home.parent / "of-the-host"
    secret.write_text("what only the host has")
    assert served.http.put("/v1/managers/default", json={"mode": "off"}).status_code == 200
    yield served.http.post("/api/sandbox/start").json()["containerId"], secret
    served.http.post("/api/sandbox/stop")


def _paths(served: Served) -> list[tuple[str, str]]:
    """Every method and path of the API's own description that acts on a running sandbox."""
    described = served.http.get("/schema/openapi.json").json()["paths"]
    return [
        (method, path)
        for path, methods in described.items()
        if path.startswith(BOX) and path.removeprefix(BOX).split("/")[-1] not in HARMLESS
        for method in methods
    ]


def test_no_path_gives_the_host_to_a_token_without_scope_host(served: Served, unwalled: tuple[str, Path]) -> None:
    id, secret = unwalled
    paths = _paths(served)
    assert len(paths) > 10
    with served.limited(*NARROW) as narrow:
        for method, path in paths:
            body = {
                key: value.replace("SECRET", str(secret)) if isinstance(value, str) else value
                for key, value in BODIES.get(path.split("/")[-1], {}).items()
            }
            where = path.replace("{id}", id).replace("{port}", "8080").replace("{path}", "x")
            told = narrow.request(method, where, params={"path": str(secret)}, json=body)
            assert told.status_code == 403, (method, path, told.status_code, told.text)
    assert secret.read_text() == "what only the host has"
    assert sorted(secret.parent.glob("of-the-host*")) == [secret]


@pytest.mark.parametrize("path", ["/api/sandbox/exec", "/v1/managers/default/exec"])
def test_the_managers_own_paths_need_scope_host_in_mode_off(
    served: Served, unwalled: tuple[str, Path], path: str
) -> None:
    command = {"command": f"cat {unwalled[1]}"}
    with served.limited(*NARROW) as narrow:
        assert narrow.post(path, json=command).status_code == 403
    told = served.http.post(path, json=command).json()
    assert (told["stdout"], told["executedInSandbox"]) == ("what only the host has", False)


def test_json_rpc_in_mode_off_needs_scope_host(served: Served, unwalled: tuple[str, Path]) -> None:
    id, secret = unwalled
    with Sandbox.connect(served.address, served.new_token(*NARROW), id=id) as narrow:
        with pytest.raises(SandboxError, match="no scope 'host'"):
            narrow.exec(f"cat {secret}")
        with pytest.raises(SandboxError, match="no scope 'host'"):
            narrow.read_file(str(secret))
    with Sandbox.connect(served.address, served.token, id=id) as owner:
        assert owner.exec(f"cat {secret}").stdout == "what only the host has"


@pytest.mark.parametrize("path", ["/process.Process/List", "/filesystem.Filesystem/Stat", "/files"])
def test_paths_of_e2b_in_mode_off_need_scope_host(served: Served, unwalled: tuple[str, Path], path: str) -> None:
    id, secret = unwalled
    headers = {"E2b-Sandbox-Id": id}
    with served.limited(*NARROW) as narrow:
        if path == "/files":
            told = narrow.get(path, params={"path": str(secret)}, headers=headers)
        else:
            told = narrow.post(path, json={"path": str(secret)}, headers=headers)
    assert told.status_code == 403, told.text


def test_who_may_not_use_it_may_see_it_and_end_it(served: Served) -> None:
    id = served.create(engine="none")
    with served.limited("read", "kill") as narrow:
        assert narrow.get(f"/v1/sandboxes/{id}").json()["sandbox"]["engine"] == "none"
        assert narrow.delete(f"/v1/sandboxes/{id}").status_code == 200


@pytest.fixture
def owner_without_walls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose owner switched the walls off for every sandbox."""
    home = tmp_path_factory.mktemp("h")
    (home / "config.yaml").write_text("mode: off\n")
    server = Served(home)
    yield server
    server.end()


def test_where_the_owner_has_no_walls_a_token_that_creates_gets_no_commands_on_the_host(
    owner_without_walls: Served,
) -> None:
    token = owner_without_walls.new_token(*NARROW)
    with owner_without_walls.client(token) as narrow:
        made = narrow.post("/v1/sandboxes", json={})
        if made.status_code == 201:
            id = made.json()["id"]
            assert narrow.post(f"/v1/sandboxes/{id}/exec", json={"command": "true"}).status_code == 403
    with pytest.raises(SandboxError, match="scope 'host'"), Sandbox.connect(owner_without_walls.address, token) as sb:
        sb.exec("true")
