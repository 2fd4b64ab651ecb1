"""An image in a virtual machine: the same as under bubblewrap, with the layer in the machine's own memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.images import manage
from sandbox.images.importing import import_path
from tests.images import making
from tests.images.conftest import SAID
from tests.images.making import directory, file, link, tar
from tests.sandboxes import Command, cli, home  # noqa: F401 - fixtures

pytestmark = pytest.mark.vm

OWN = b"-----BEGIN CERTIFICATE-----\nT1dOIE9GIFRIRSBJTUFHRQ==\n-----END CERTIFICATE-----\n"
HOSTILE = [link("etc", "/.machine-system/etc"), link("srv", "/.machine"), directory("opt/.machine-system")]


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One cache for all tests here: the machine's template is in it."""
    place = Path(os.environ.get("SANDBOX_CACHE_DIR") or tmp_path_factory.getbasetemp() / "cache")
    monkeypatch.setenv("SANDBOX_CACHE_DIR", str(place))
    yield place / "images"


@pytest.fixture
def image(store: Path, tmp_path: Path) -> str:
    above = tar([directory("srv"), directory("srv/app"), file("etc/ssl/certs/ca-certificates.crt", OWN)])
    manage.name(import_path(str(making.layout(tmp_path / "layout", [making.system(), above], SAID))), "machines")
    return "machines"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "mine").write_text("of the project")
    return place


def machine(image: str, project: Path, **more: object) -> Sandbox:
    return Sandbox({"engine": "qemu", "image": image, "filesystem": {"root": str(project)}, **more})


def say(sandbox: Sandbox, command: str) -> str:
    done = sandbox.exec(["/bin/sh", "-c", command])
    return (done.stdout + done.stderr).strip()


def test_the_images_system_user_and_variables_are_there_and_the_project_at_its_path(image: str, project: Path) -> None:
    with machine(image, project) as sandbox:
        assert say(sandbox, "cat /etc/os-release mine") == "ID=test\nof the project"
        assert "uid=33(web) gid=34(web)" in say(sandbox, "id")
        assert {"OWN=value", "PATH=/usr/bin"} <= set(say(sandbox, "env").split("\n"))
        assert say(sandbox, "echo new > made") == "" and (project / "made").read_text() == "new\n"
        assert "198.18.0.2" in say(sandbox, "cat /etc/resolv.conf")


def test_changes_anywhere_go_to_a_layer_that_ends_with_the_machine(image: str, project: Path, store: Path) -> None:
    root = Path(manage.entry_of(image).path)
    before = making.tree(root)
    change = "echo x > /made; echo y > /usr/bin/new; rm /etc/os-release; mkdir -p /srv/app/deep"
    with machine(image, project) as sandbox:
        assert say(sandbox, change) == ""
        assert say(sandbox, "cat /made /usr/bin/new; ls /srv/app") == "x\ny\ndeep"
    with machine(image, project) as sandbox:
        assert say(sandbox, "cat /etc/os-release; ls -d /made 2>/dev/null; ls /srv/app") == "ID=test"
    assert making.tree(root) == before


def test_the_gates_authority_is_in_the_images_own_bundle(image: str, project: Path) -> None:
    with machine(image, project) as sandbox:
        told = say(sandbox, "cat /etc/sandbox-ca.pem; echo @@; cat /etc/ssl/certs/ca-certificates.crt")
    authority, bundle = told.split("@@")
    assert OWN.decode() in bundle and authority.strip() and authority.strip() in bundle


def test_blocked_files_stay_blocked_and_nothing_of_the_hosts_system_can_be_opened(image: str, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1")
    with machine(image, project) as sandbox:
        assert "TOKEN" not in say(sandbox, f"cat .env {project}/.env")
        for path in ("/.machine/ram", "/.machine-system/usr/bin/env", "/usr/bin/python3"):
            assert say(sandbox, f"test -r {path} && echo there") == ""
        assert say(sandbox, "ls /.machine-system /.machine 2>/dev/null; ls /usr") == "bin"


def test_root_of_the_machine_is_root_of_the_image(image: str, project: Path) -> None:
    with machine(image, project, user="root") as sandbox:
        assert say(sandbox, "id").startswith("uid=0(root)")
        assert say(sandbox, "echo x > /usr/bin/x && cat /usr/bin/x; echo y > out") == "x"
    assert (project / "out").read_text() == "y\n"


def test_a_directory_is_an_image_and_a_hostile_one_leads_nowhere(store: Path, project: Path, tmp_path: Path) -> None:
    manage.name(import_path(str(making.layout(tmp_path / "l", [making.system(), tar(HOSTILE)]))), "machines-hostile")
    root = tmp_path / "root"
    shutil.copytree(Path(manage.entry_of("machines-hostile").path) / "root", root, symlinks=True)
    manage.remove("machines-hostile")
    with machine(str(root), project) as sandbox:
        assert "root:x:0:0:" in say(sandbox, "cat /etc/passwd")
        assert say(sandbox, "ls /srv/ 2>/dev/null; cat mine") == "of the project"


@pytest.mark.root  # the limits of `max` need a control group
def test_in_mode_max_nothing_of_the_image_can_be_changed(image: str, project: Path) -> None:
    with machine(image, project, mode="max") as sandbox:
        said = say(sandbox, "touch /usr/x /x; touch $HOME/own /tmp/own && echo home")
    assert said.startswith("home") and said.count("cannot touch") == 2


def test_a_fork_continues_with_what_was_changed_in_the_image(image: str, project: Path) -> None:
    with machine(image, project) as sandbox:
        assert say(sandbox, "echo before > /made") == ""
        (fork,) = sandbox.fork(1)
        with fork:
            assert say(fork, "cat /made; echo after > /made; cat /etc/os-release") == "before\nID=test"
        assert say(sandbox, "cat /made") == "before"


def test_the_entry_point_and_working_directory_are_the_images(cli: Command, image: str) -> None:  # noqa: F811
    done = cli("run", "--engine", "qemu", "--image", image)
    assert (done.stdout, done.returncode) == ("from the image: yes value\n/srv/app\n", 0), done.stderr
