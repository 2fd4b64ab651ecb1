"""The pytest plugin, as another project's suite uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import BLOCKS

pytestmark = pytest.mark.walls

SUITE = """
import pytest

PATHS = []

@pytest.fixture
def sandbox_config():
    return {"environment": {"set": {"COLOUR": "blue", "SIZE": "small"}}}

def test_it_runs_commands_behind_walls(sandbox, tmp_path):
    assert sandbox.exec("echo $COLOUR > made").ok
    assert open(f"{sandbox.directory}/made").read() == "blue\\n"
    assert not sandbox.exec(f"cat {SECRET!r}").ok
    PATHS.append(sandbox.directory)

def test_another_test_has_another_one(sandbox):
    assert PATHS and sandbox.directory not in PATHS and not sandbox.exists("made")

@pytest.mark.sandbox({"environment": {"set": {"COLOUR": "red"}}})
class TestMarks:
    def test_of_a_class(self, sandbox):
        assert sandbox.exec("echo $COLOUR $SIZE").stdout == "red small\\n"

    @pytest.mark.sandbox(config={"environment": {"set": {"COLOUR": "green"}}})
    def test_the_nearest_wins(self, sandbox):
        assert sandbox.exec("echo $COLOUR").stdout == "green\\n"

def test_several(sandbox, sandbox_factory):
    other = sandbox_factory({"filesystem": {"read_only": True}})
    assert other.id != sandbox.id and not other.exec("touch x").ok
    global KEPT
    KEPT = other

def test_they_end_with_their_test():
    with pytest.raises(Exception, match="closed"):
        KEPT.exec("true")
"""


def run(project: Path, suite: str, base: Path) -> str:
    """What pytest prints about a suite, which must pass."""
    project.mkdir()
    (project / "test_it.py").write_text(suite)
    (project / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(base)]
    done = subprocess.run(command, cwd=project, env=dict(os.environ), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_suite_has_a_fresh_sandbox_for_each_test(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    printed = run(tmp_path / "project", SUITE.replace("{SECRET!r}", str(secret)), tmp_path / "base")
    assert "6 passed" in printed


def test_the_page_s_own_suite_passes(tmp_path: Path) -> None:
    (block,) = [block for block in BLOCKS if block.note("needs") == "pytest"]
    assert "3 passed" in run(tmp_path / "project", block.code, tmp_path / "base")


HOSTILE = """
import os, socket
from pathlib import Path

Path("ran-at").write_text(socket.gethostname())

def test_it_is_behind_walls():
    assert not os.path.exists(SECRET)
    Path("made").write_text("in the project")

def test_one_fails():
    assert "a reason" == "another"
"""


def whole(project: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, "-c", "import sys, pytest; sys.exit(pytest.main())", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, **variables}
    return subprocess.run([*script, *words], cwd=project, env=env, capture_output=True, text=True, timeout=120)


def test_a_whole_session_runs_inside_with_its_conftest_and_its_status(tmp_path: Path) -> None:
    secret, project = tmp_path / "secret", tmp_path / "project"
    secret.write_text("s3cret")
    project.mkdir(exist_ok=True)
    (project / "conftest.py").write_text(f"import os\nassert not os.path.exists({str(secret)!r})\n")
    (project / "test_it.py").write_text(HOSTILE.replace("SECRET", repr(str(secret))))
    (project / "pytest.ini").write_text("[pytest]\naddopts = --sandbox\n")
    done = whole(project, "--sandbox")
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout and "another" in done.stdout, done.stderr
    assert (project / "made").exists() and (project / "ran-at").read_text() == "sandbox"


def test_a_session_says_that_it_runs_inside_and_warns_of_a_home_that_is_the_project(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").touch()
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    inside, outside = (whole(tmp_path, "-v", *words, HOME=str(tmp_path)) for words in (["--sandbox"], []))
    assert "this whole session runs in one" in inside.stdout and "home directory is the project" in inside.stderr
    assert outside.returncode == 0 and "sandbox: " not in outside.stdout + outside.stderr


def test_code_that_a_projects_settings_imported_first_is_reported(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "early.py").write_text("")
    (project / "pytest.ini").write_text("[pytest]\naddopts = -p early\n")
    done = whole(project, "--sandbox")
    assert done.returncode == 4 and "early of the project was imported before" in done.stderr


@pytest.mark.parametrize("by", ["command line", "environment"])
@pytest.mark.parametrize("addopts", ["--", "-- test_it.py", "-p no:cacheprovider --"])
def test_a_projects_settings_cannot_turn_the_option_into_a_file_name(tmp_path: Path, by: str, addopts: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "conftest.py").write_text(
        "import pathlib, socket\npathlib.Path('ran-at').write_text(socket.gethostname())\n"
    )
    (project / "test_it.py").write_text("def test_it(): pass\n")
    (project / "pytest.ini").write_text(f"[pytest]\naddopts = {addopts}\n")
    done = whole(project, "--sandbox") if by == "command line" else whole(project, PYTEST_ADDOPTS="--sandbox")
    assert (project / "ran-at").read_text() == "sandbox", done.stdout + done.stderr


@pytest.mark.parametrize("addopts", ["-p no:sandbox", "--disable-plugin-autoload -p no:sandbox"])
def test_a_projects_settings_do_not_switch_off_a_plugin_that_is_asked_for(tmp_path: Path, addopts: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "conftest.py").write_text("import socket\nassert socket.gethostname() == 'sandbox'\n")
    (project / "test_it.py").write_text("def test_it(): pass\n")
    (project / "pytest.ini").write_text(f"[pytest]\naddopts = {addopts}\n")
    done = whole(project, "-p", "sandbox", "--sandbox")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_what_the_environment_asks_pytest_for_holds_inside(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_it.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    done = whole(project, "--sandbox", PYTEST_ADDOPTS="-k one")
    assert "1 passed, 1 deselected" in done.stdout, done.stdout + done.stderr


PLUGIN = """
import os, pathlib, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    os.environ["SANDBOX_PYTEST_INSIDE"] = "1"  # as pytest-env does, when a project's settings say so
    pathlib.Path("acted").write_text("")  # as pytest-django imports the settings of a project
"""


def test_other_plugins_that_act_on_a_projects_settings_come_later(tmp_path: Path) -> None:
    project, plugins = tmp_path / "project", tmp_path / "plugins"
    described = plugins / "early_env-1.dist-info"
    for one in (project, described):
        one.mkdir(parents=True)
    (plugins / "early_env.py").write_text(PLUGIN)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: early-env\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[pytest11]\nearly_env = early_env\n")
    (project / "test_it.py").write_text("import socket\ndef test_it(): assert socket.gethostname() == 'sandbox'\n")
    done = whole(project, "--sandbox", PYTHONPATH=str(plugins))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    assert not (project / "acted").exists()


def test_what_is_printed_inside_comes_while_the_session_runs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_it.py").write_text(
        "import pathlib, time\ndef test_one(): pass\n"
        "def test_two():\n    while not pathlib.Path('seen').exists(): time.sleep(0.05)\n"
    )
    script = [sys.executable, "-c", "import sys, pytest; sys.exit(pytest.main())", "-v", "-p", "no:cacheprovider"]
    with subprocess.Popen([*script, "--sandbox"], cwd=project, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any("test_one PASSED" in line for line in running.stdout)
        (project / "seen").write_text("")
        assert "2 passed" in running.stdout.read()


def test_a_pytest_that_is_started_by_a_path_through_the_project_s_parent_is_not_part_of_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_it.py").write_text("def test_it(): pass\n")
    (tmp_path / "start.py").write_text("import sys, pytest; sys.exit(pytest.main())")
    words = [sys.executable, f"{project}/../start.py", "-q", "-p", "no:cacheprovider", "--sandbox"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
