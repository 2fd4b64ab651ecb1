"""`apply` killed after each single thing that it does to a disk: all was done or nothing, and the next one finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import sandbox.vfs.apply  # noqa: F401  # its import is no part of what is counted
from sandbox import Sandbox
from sandbox.config.rmtree import remove_tree
from sandbox.vfs.workspace import Workspace
from sandbox.vfs.workspace_layers import place_of
from tests.vfs import sequences

pytestmark = pytest.mark.walls

# What tenants do to the tree of `sequences.begin`.
WORK = {
    "second names with a mode": "ln b n; chmod 600 n; ln d/x y; echo more >> y; chmod 755 d/x",
    "two files become one": "rm b; ln a b; chmod 700 a; ln d/e/y d/e/z; chmod 711 d/e/z",
    "a directory moved into another": "mv d moved; mv moved/e here; mkdir d; echo z > d/z; chmod 700 d",
    "files that change places": "mv a t; mv b a; mv t b; mv l k; mv d/x l; mv k d/x",
    "things in the place of others": "rm -r a l d; mkdir a d; echo in > a/c; echo new > d/x; ln -s b l; chmod 711 a",
    "modes of files and directories": "chmod 700 a; echo y >> d/e/y; echo v > d/e/v; chmod 555 d/e; chmod 500 d",
}


class Scene:
    """A project, and a sandbox that has ended with changes of it. Can be brought back to before any `apply`."""

    def __init__(self, place: Path, script: str) -> None:
        self.project, self._kept = place / "project", place / "kept"
        sequences.begin(str(self.project))
        self.before = self.seen()
        with Sandbox({"filesystem": {"root": str(self.project), "overlay": True}}) as made:
            look = f"{Path(sequences.__file__).read_text()}\njson.dump(view('.'), sys.stdout)"
            look = look.replace('if __name__ == "__main__":', "if False:")
            result = made.exec(["sh", "-ec", f'{script}\nexec python3 -c "$1"', "sh", look])
            assert result.exit_code == 0, result.stderr
        self.wanted = json.loads(result.stdout)
        self.id, self.home = made.id, os.environ["SANDBOX_HOME"]
        self.overlay = Path(self.home, "vms", made.id, "overlay")
        remove_tree(str(self.overlay / "work"))  # the kernel's, closed to its owner
        self._kept.mkdir()
        self._copy(self.project, self._kept / "project")
        self._copy(self.overlay, self._kept / "overlay")
        self.workspace().apply()
        self.after = self.seen()
        assert self.after[0] == self.wanted

    def seen(self) -> tuple[dict[str, list[object]], list[list[str]]]:
        return sequences.view(str(self.project)), sequences.groups(str(self.project))

    def workspace(self) -> Workspace:
        return Workspace.find(self.home, self.id, ended=True)

    def again(self) -> None:
        """Everything as it was when the sandbox had ended."""
        for place in (self.project, self.overlay):
            remove_tree(str(place))
        self._copy(self._kept / "project", self.project)
        self._copy(self._kept / "overlay", self.overlay)
        told = [
            os.lstat(os.path.join(top, name)) for top, *names in os.walk(self.project) for name in sum(names, ["."])
        ]
        kept = json.loads((self.overlay / "overlay.json").read_text())
        kept["started_ns"] = max(one.st_ctime_ns for one in told)
        kept["place"] = place_of(str(self.project))
        (self.overlay / "overlay.json").write_text(json.dumps(kept))
        while os.stat(self.overlay).st_ctime_ns <= kept["started_ns"]:  # the file system's clock moves on
            os.utime(self.overlay)

    @staticmethod
    def _copy(one: Path, other: Path) -> None:
        subprocess.run(["cp", "-a", str(one), str(other)], check=True)

    def on_disk(self) -> list[object]:
        """All that a crash would leave."""
        found: list[object] = []
        for place in (self.project, self.overlay):
            for top, directories, names in os.walk(place):
                for name in [".", *directories, *names]:
                    told = os.lstat(f"{top}/{name}")
                    found.append((top, name, told.st_mode, told.st_ino, told.st_size, told.st_ctime_ns, told.st_nlink))
        return found


def forked(scene: Scene, call: Callable[[int], bool]) -> None:
    """An `apply` in a process of its own, killed at the first call of something in C of which `call` says so."""
    child = os.fork()
    if child == 0:
        number = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal number
            if event == "c_call":
                number += 1
                if call(number):
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            workspace = scene.workspace()
            sys.setprofile(count)
            workspace.apply()
            sys.setprofile(None)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] in (0, signal.SIGKILL)


def points(scene: Scene, log: Path) -> list[int]:
    """The numbers of the calls before which something on the disk has changed."""
    last = scene.on_disk()
    with log.open("w") as told:

        def changed(number: int) -> bool:
            nonlocal last
            now = scene.on_disk()
            if now != last:
                told.write(f"{number}\n")
                told.flush()
            last = now
            return False

        forked(scene, changed)
    return [int(line) for line in log.read_text().split()]


def check(scene: Scene) -> None:
    scene.workspace().recover()
    assert scene.seen() in (scene.before, scene.after)
    assert scene.workspace().apply().refused == []
    assert scene.seen() == scene.after
    assert scene.workspace().changes() == []


@pytest.mark.parametrize("what", WORK)
def test_an_apply_that_is_killed_anywhere_was_done_or_not_and_is_finished_by_the_next(
    tmp_path: Path, what: str
) -> None:
    scene = Scene(tmp_path, WORK[what])
    scene.again()
    numbers = points(scene, tmp_path / "points")
    assert len(numbers) > 20
    for number in numbers:
        scene.again()
        forked(scene, number.__eq__)
        check(scene)


@pytest.mark.soak
@pytest.mark.parametrize("what", WORK)
def test_nor_does_it_matter_where_the_next_one_is_killed(tmp_path: Path, what: str) -> None:
    scene = Scene(tmp_path, WORK[what])
    scene.again()
    for first in points(scene, tmp_path / "points"):
        scene.again()
        forked(scene, first.__eq__)
        for second in points(scene, tmp_path / "further points"):
            scene.again()
            for number in (first, second):
                forked(scene, number.__eq__)
            check(scene)
