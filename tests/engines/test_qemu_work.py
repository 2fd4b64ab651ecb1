"""What people do in a virtual machine: their tests, git, and as root what no process wall allows."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import LimitUnavailable, Sandbox
from sandbox.engines.machine import packages
from sandbox.plan.plan import Plan
from tests.engines.test_limits import with_groups
from tests.sandboxes import Command, cli, home  # noqa: F401 - fixtures

pytestmark = [pytest.mark.walls, pytest.mark.usefixtures("machines")]


def machine(root: Path, **more: object) -> Sandbox:
    return Sandbox({"engine": "qemu", "filesystem": {"root": str(root)}, **more})


def out(sandbox: Sandbox, script: str) -> str:
    result = sandbox.exec(script, timeout=600)
    assert result.exit_code == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.vm
def test_a_projects_tests_run_with_the_hosts_programs_and_no_image(cli: Command) -> None:  # noqa: F811
    Path("test_it.py").write_text("def test_it():\n    assert open('/proc/version').read()\n")
    # Programs of the system and under the home are shown; this environment may be anywhere. So may our package, in an
    # editable install: pytest imports the plugin that the environment names, and ends if it cannot.
    shown = ("--ro", sys.prefix, "--ro", str(Path(inspect.getfile(Sandbox)).parent))
    words = ("pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    done = cli("run", "--engine", "qemu", *shown, "--", *words)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stderr


def test_git_and_modes_are_what_a_tenant_expects_and_the_host_sees_the_same(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", tmp_path, *words], capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    (tmp_path / "file").write_text("x")
    git("add", "file")
    identity = "-c user.name=n -c user.email=n@example.org -c commit.gpgsign=false"
    script = "printf '#!/bin/sh\\necho ran' > run && chmod +x run && ./run && git add run"
    with machine(tmp_path) as sandbox:
        said = sandbox.exec(f"{script} && git {identity} commit -qm both && git status --short && stat -c %U file run")
        assert (said.exit_code, said.stderr) == (0, "")
        owner = out(sandbox, "id -un").strip()
        assert said.stdout.split() == ["ran", owner, owner]
    assert git("ls-files", "-s").count("\n") == 2 and "100755" in git("ls-files", "-s", "run")
    assert (tmp_path / "run").stat().st_uid == os.geteuid()


@with_groups
def test_the_limits_are_the_size_of_the_machine_and_hold_the_room_too(tmp_path: Path) -> None:
    with machine(tmp_path, limits={"cpus": 2, "memory": "300m"}) as sandbox:
        assert out(sandbox, "nproc") == "2\n"
        total = int(out(sandbox, "grep MemTotal /proc/meminfo").split()[1])
        assert total < 300 * 1024
        room = sandbox._running.pid
        groups = Path(f"/proc/{room}/cgroup").read_text()
        assert "sandbox" in groups, groups


def test_a_machine_too_small_for_its_kernel_is_an_error_that_says_how_much_it_needs(tmp_path: Path) -> None:
    with pytest.raises(LimitUnavailable, match="at least 128 MiB"):
        machine(tmp_path, limits={"memory": "64m"})


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A Debian package with one program."""
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/of-the-package").write_text("#!/bin/sh\necho installed\n")
    (tree / "usr/bin/of-the-package").chmod(0o755)
    control = "Package: of-the-test\nVersion: 1\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: x\n"
    (tree / "DEBIAN/control").write_text(control)
    subprocess.run(["dpkg-deb", "-b", tree, tmp_path / "it.deb"], check=True, capture_output=True)
    return tmp_path / "it.deb"


@pytest.mark.vm
def test_root_of_the_machine_installs_packages_for_itself_alone(package: Path) -> None:
    with machine(package.parent, user="root") as sandbox:
        out(sandbox, f"apt-get install -y {package}")
        assert (
            out(sandbox, "of-the-package; dpkg-query -Wf '${Status}' of-the-test") == "installed\ninstall ok installed"
        )
    assert not os.path.exists("/usr/bin/of-the-package")


def test_what_only_root_of_the_host_may_read_of_the_packages_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "triggers").mkdir()
    (tmp_path / "info").mkdir()
    (tmp_path / "updates").mkdir()
    for name in ("status", "lock", "updates/0001", "triggers/File", "triggers/Lock", "info/a.list"):
        (tmp_path / name).touch()
    monkeypatch.setattr(packages, "DATABASE", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, how: not path.endswith("Lock"))  # as for anybody but root
    plan = Plan()
    packages.show_packages(plan)
    shown = [os.path.relpath(bind.target, tmp_path) for bind in plan.binds if bind.target.startswith(str(tmp_path))]
    assert shown == ["info", "status", "triggers/File"]
    assert f"{tmp_path}/updates" in plan.directories  # an installation on the host that goes on just now is not theirs


def test_no_password_for_packages_comes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "sources.list"
    listed.write_text("deb http://deb.example/debian stable main\n")
    (tmp_path / "sources.list.d").mkdir()
    for name, text, mode in (
        ("with-a-password", "deb https://me:secret@deb.example/debian stable main\n", 0o644),
        ("not-for-everybody", "deb https://deb.example/debian stable main\n", 0o640),
        ("plain", "deb https://deb.example/debian stable main # me@example.org\n", 0o644),
    ):
        (tmp_path / "sources.list.d" / name).write_text(text)
        (tmp_path / "sources.list.d" / name).chmod(mode)
    monkeypatch.setattr(packages, "SOURCES", str(listed))
    assert list(packages._sources()) == [str(listed), str(tmp_path / "sources.list.d/plain")]


CONTAINER = """
set -e
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /tmp/c/rootfs/usr /tmp/c/rootfs/proc /tmp/c/rootfs/dev /tmp/c/rootfs/sys
for d in bin lib lib64; do ln -s usr/$d /tmp/c/rootfs/$d; done
cd /tmp/c && runc spec
python3 -c '
import json
made = json.load(open("config.json"))
made["process"] |= {"terminal": False, "args": ["sh", "-c", "hostname; ls -d /tmp"]}
made["mounts"].append({"destination": "/usr", "type": "none", "source": "/usr", "options": ["rbind", "ro"]})
json.dump(made, open("config.json", "w"))'
runc run it < /dev/null
"""


@pytest.mark.vm
@pytest.mark.skipif(shutil.which("runc", path="/usr/bin:/usr/sbin") is None, reason="no runc here")
def test_root_of_the_machine_runs_containers(tmp_path: Path) -> None:
    with machine(tmp_path, user="root") as sandbox:
        result = sandbox.exec(CONTAINER, timeout=600)
        assert (result.stdout, "/tmp" in result.stderr) == ("runc\n", True), result.stderr  # it has no /tmp
