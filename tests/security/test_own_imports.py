"""Where tenants can write, the owner loads no code: neither its own, nor a module that has the name of another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sandbox

pytestmark = pytest.mark.walls

PACKAGES = [one for one in sys.path if one.endswith("-packages")]
# Tenants plant a module under every name of the standard library and of packages that an owner may want later.
PLANT = """
import sys
for name in (*sys.stdlib_module_names, "yaml", "rich", "msgspec", "cryptography", "ruamel", "h11", "keyring"):
    with open(f"{name}.py", "w") as file:
        file.write(f"open({sys.argv[1]!r}, 'a').write({name!r} + '\\\\n')\\n")
"""
OWNER = """
import sys
from sandbox import Sandbox
with Sandbox({"environment": {"set": {"A": "1"}}}) as sb:
    sb.exec(["python3", "-I", "-c", sys.argv[1], sys.argv[2]], check=True)
    assert "ssl.py" in sb.exec("ls").stdout
    from sandbox import AsyncSandbox, Client  # these load more of the library
    import ssl  # and the program itself does
"""


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "SANDBOX_HOME": str(home / "own"), "HOME": str(home)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    subprocess.run(["git", "init", "-q", place], check=True)
    return place


def test_a_script_in_the_project_imports_nothing_that_its_tenants_planted(tmp_path: Path, project: Path) -> None:
    script = project / "agent.py"
    script.write_text(OWNER)
    told = tmp_path / "told"
    done = subprocess.run(
        [sys.executable, script, PLANT, told], cwd=project, env=_environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not told.exists(), told.read_text()


def test_a_program_still_imports_its_own_modules_from_the_project(tmp_path: Path, project: Path) -> None:
    (project / "mine.py").write_text("from mine_too import value\n")
    (project / "mine_too.py").write_text("value = 'mine'\n")
    (project / "agent.py").write_text(
        "from sandbox import Sandbox\n"
        "with Sandbox() as sb:\n"
        "    sb.exec('true')\n"
        "    import mine\n"
        "    sb.exec('cat', input='x', on_stdout=lambda data: __import__('mine'))\n"
        "print(mine.value)\n"
    )
    command = [sys.executable, "agent.py"]
    done = subprocess.run(command, cwd=project, env=_environment(tmp_path), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "mine\n"), done.stderr


@pytest.fixture
def installed(tmp_path: Path, project: Path) -> list[str]:
    """`sandbox` in a virtual environment of the project, as `pip install` in a project's `.venv` leaves it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project / ".venv"], check=True)
    (packages,) = (project / ".venv/lib").glob("python*/site-packages")
    (packages / "sandbox").symlink_to(Path(sandbox.__file__).parent)
    (packages / "others.pth").write_text("".join(f"{one}\n" for one in PACKAGES))
    return [str(project / ".venv/bin/python"), "-I", "-m", "sandbox"]


def test_sandbox_in_the_projects_virtual_environment_cannot_be_changed_from_inside(
    tmp_path: Path, project: Path, installed: list[str]
) -> None:
    attack = (
        "echo 1 > .venv/lib/python*/site-packages/x.pth; echo 2 > .venv/bin/python-x; rm .venv/bin/python;"
        "mv .venv other; rm .venv/lib/python*/site-packages/sandbox; echo kept > elsewhere; true"
    )
    before = sorted(str(one) for one in (project / ".venv").rglob("*") if "__pycache__" not in one.parts)
    done = subprocess.run(
        [*installed, "run", "--", "sh", "-c", attack],
        cwd=project, env=_environment(tmp_path), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(str(one) for one in (project / ".venv").rglob("*") if "__pycache__" not in one.parts) == before
    assert (project / "elsewhere").read_text() == "kept\n"
    assert str(project / ".venv") in done.stderr  # the person is told


def test_sandbox_installed_from_the_project_itself_cannot_be_changed_from_inside(tmp_path: Path, project: Path) -> None:
    package = project / "src/sandbox"
    package.parent.mkdir()
    subprocess.run(["cp", "-r", Path(sandbox.__file__).parent, package], check=True)
    environment = {**_environment(tmp_path), "PYTHONPATH": str(project / "src")}
    attack = "echo broken > src/sandbox/guards/git_index.py; mv src other; echo kept > src/other; true"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sandbox", "run", "--", "sh", "-c", attack],
        cwd=project, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (package / "guards/git_index.py").read_text() != "broken\n"
    assert (project / "src/other").read_text() == "kept\n"


def test_with_an_overlay_the_virtual_environment_may_be_changed(
    tmp_path: Path, project: Path, installed: list[str]
) -> None:
    done = subprocess.run(
        [*installed, "run", "--overlay", "--", "sh", "-c", "echo 1 > .venv/bin/new"],
        cwd=project, env=_environment(tmp_path), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (project / ".venv/bin/new").exists()


def test_an_environment_of_hard_links_is_frozen_as_a_whole(tmp_path: Path, project: Path, installed: list[str]) -> None:
    """As uv makes them: thousands of single mounts would not even fit into the plan."""
    (packages,) = (project / ".venv/lib").glob("python*/site-packages")
    for number in range(3000):
        (packages / f"one{number}.py").write_text("ours\n")
        (packages / f"two{number}.py").hardlink_to(packages / f"one{number}.py")
    (project / "other").mkdir()
    (project / "other" / "link.py").hardlink_to(packages / "one1.py")
    attack = (
        "echo broken > other/link.py; echo broken > .venv/lib/python*/site-packages/two2.py; echo kept > other/file"
    )
    done = subprocess.run(
        [*installed, "run", "--", "sh", "-c", f"{attack}; true"],
        cwd=project, env=_environment(tmp_path), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (packages / "one1.py").read_text() == (packages / "two2.py").read_text() == "ours\n"
    assert (project / "other" / "file").read_text() == "kept\n"
