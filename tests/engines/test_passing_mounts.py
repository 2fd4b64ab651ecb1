"""Mounts of the host come and go while a sandbox is built: bwrap fails if one has gone meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.engines import bubblewrap
from sandbox.errors import WallError

pytestmark = pytest.mark.walls

SAID = 'bwrap: Can\'t bind mount /oldroot/ on /newroot/.host: {why} "/newroot/.host/tmp/x": Invalid argument'
GONE = "Unable to apply mount flags: remount"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def failing(place: Path, times: int, said: str) -> str:
    """A bwrap that says this and fails a few times."""
    place.mkdir()
    script = place / "bwrap"
    real = bubblewrap.find_bwrap()
    script.write_text(f"""#!/bin/sh
[ $(ls {place} | wc -l) -gt {times} ] && exec {real} "$@"
touch $(mktemp -u {place}/XXXXXXXX)
cat >&2 <<'END'
{said}
END
exit 1
""")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize("limits", [{}, {"memory": "256m"}], ids=["plain", "limited"])
def test_a_mount_that_has_gone_meanwhile_keeps_no_sandbox_from_starting(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, str]
) -> None:
    monkeypatch.setattr(bubblewrap, "PLACES", (failing(tmp_path / "bin", 2, SAID.format(why=GONE)),))
    with Sandbox({"filesystem": {"root": str(project)}, "limits": limits}) as sandbox:
        assert sandbox.exec("echo hello").stdout == "hello\n"
    assert len(list((tmp_path / "bin").iterdir())) == 3


@pytest.mark.parametrize(("said", "tries"), [(SAID.format(why=GONE), 5), (SAID.format(why="Unable to remount"), 1)])
def test_one_that_fails_each_time_is_an_error_that_says_why(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, said: str, tries: int
) -> None:
    monkeypatch.setattr(bubblewrap, "PLACES", (failing(tmp_path / "bin", 100, said),))
    with pytest.raises(WallError, match="could not build the walls"):
        Sandbox({"filesystem": {"root": str(project)}})
    assert len(list((tmp_path / "bin").iterdir())) == tries + 1
