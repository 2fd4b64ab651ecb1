"""Whatever a tenant does in an overlay, `apply` gives the host the tree that the tenant saw; also when it is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sandbox import Sandbox
from sandbox.config.rmtree import remove_tree
from sandbox.vfs.file_state import UNSEEN
from sandbox.vfs.workspace import Workspace
from tests import soaking
from tests.vfs import sequences

pytestmark = pytest.mark.walls

KINDS = ["write", "create", "truncate", "mkdir", "rename", "link", "symlink", "unlink", "rmtree", "chmod"]
step = st.tuples(
    st.sampled_from([*KINDS, "rename", "link"]),
    st.sampled_from(sequences.NAMES),
    st.sampled_from(sequences.NAMES),
    st.integers(0, 9),
)
one = st.lists(step, min_size=1, max_size=10)
many = st.one_of(st.lists(one, min_size=12, max_size=12), st.lists(one, min_size=1, max_size=1))
kill = st.one_of(st.integers(0, 9000), st.integers(500, 3000))
# No shrinking: each example is a sandbox of its own, and the sequence that fails is in the message.
PHASES = (Phase.explicit, Phase.generate)
quick = settings(max_examples=6, suppress_health_check=list(HealthCheck), phases=PHASES)
Work = list[list[list[object]]]
PROGRAM = Path(sequences.__file__).read_text()


def work(base: Path, sequence: Work, kills: list[int]) -> None:
    """Does the work in a sandbox, kills `apply` at those of its calls, then lets one finish and compares."""
    project = base / os.urandom(4).hex()
    places = sequences.places(sequence)
    for place in places:
        sequences.begin(str(project / place))
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        result = sandbox.exec(["python3", "-c", PROGRAM], stdin=json.dumps(sequence).encode())
        assert result.exit_code == 0, result.stderr
    seen = json.loads(result.stdout)
    home = os.environ["SANDBOX_HOME"]
    for after in kills:
        killed(home, sandbox.id, after)
    done = Workspace.find(home, sandbox.id, ended=True).apply()
    # Killed after it was complete: an ordinary user's next one cannot see that where a tenant has closed a directory.
    unseen = [] if os.geteuid() == 0 or not kills else [one for one in done.refused if one[1] == UNSEEN["closed"]]
    assert done.refused == unseen, sequence
    assert [name for name in os.listdir(project) if name.startswith(".")] == []
    for number, (place, wanted) in enumerate(zip(places, seen, strict=True)):
        now = sequences.view(str(project / place))
        both = {path: (wanted.get(path), now.get(path)) for path in {*wanted, *now}}
        differ = {path: pair for path, pair in both.items() if pair[0] != pair[1]}
        assert differ == {}, sequence[number]
    # As root only: another cannot look into what a tenant has closed. Links are the same for both.
    if os.geteuid() == 0:
        upper = Path(home, "vms", sandbox.id, "overlay/upper")
        assert sequences.groups(str(project)) == sequences.groups(str(upper))
        assert Workspace.find(home, sandbox.id, ended=True).changes() == []
    Workspace.find(home, sandbox.id, ended=True).discard()
    remove_tree(str(project))  # a soak makes millions of files


def killed(home: str, id: str, after: int) -> None:
    """An `apply` that is killed at its call number `after` of something written in C: every system call is one."""
    child = os.fork()
    if child == 0:
        left = after

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal left
            if event == "c_call":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            workspace = Workspace.find(home, id, ended=True)
            sys.setprofile(count)
            workspace.apply()
            sys.setprofile(None)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] in (0, signal.SIGKILL)


@given(many)
@quick
def test_the_host_gets_the_tree_that_the_tenant_saw(tmp_path_factory: pytest.TempPathFactory, done: Work) -> None:
    work(tmp_path_factory.mktemp("apply"), done, [])


@given(many, st.lists(kill, min_size=1, max_size=6))
@quick
def test_an_apply_that_was_killed_is_finished_by_the_next(
    tmp_path_factory: pytest.TempPathFactory, done: Work, kills: list[int]
) -> None:
    work(tmp_path_factory.mktemp("killed"), done, kills)


def test_two_names_of_a_file_have_the_mode_that_either_was_given(tmp_path: Path) -> None:
    # A soak found this one, and it was the look from inside that was wrong: to read `b` it changed the mode of `n`.
    work(tmp_path, [[["chmod", "b", "b", 6], ["link", "b", "n", 0], ["chmod", "n", "n", 0]]], [])
    work(tmp_path, [[["link", "b", "n", 0], ["chmod", "b", "b", 6], ["chmod", "n", "n", 2]]], [])


@pytest.mark.soak
def test_both_for_long(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("soak")

    @given(many, st.lists(kill, max_size=6))
    @settings(max_examples=20, suppress_health_check=list(HealthCheck), derandomize=False, phases=PHASES)
    def once(done: Work, kills: list[int]) -> None:
        work(base, done, kills)

    for _ in soaking.rounds():
        once()
