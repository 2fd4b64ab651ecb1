"""Whom tenants are, and whose files they make: programs that keep owners work, whoever owns the sandbox."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from sandbox import Sandbox


def archive(path: Path) -> None:
    """An archive as others pack it: their owners, old times, modes of their own."""
    with tarfile.open(path, "w:gz") as packed:
        for name, mode in (("tool", 0o755), ("notes", 0o640)):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.uid, entry.gid, entry.uname, entry.gname = 4321, 4321, "somebody", "else"
            entry.mode, entry.mtime, entry.size = mode, 1_000_000_000, 3
            packed.addfile(entry, io.BytesIO(b"abc"))


def kept(directory: Path) -> list[tuple[str, int, float, int]]:
    """Name, mode, time and owner of what was unpacked."""
    found = [(path.name, path.stat()) for path in sorted(directory.iterdir())]
    return [(name, info.st_mode & 0o777, info.st_mtime, info.st_uid) for name, info in found]


WHOLE = [("notes", 0o640, 1_000_000_000.0, os.getuid()), ("tool", 0o755, 1_000_000_000.0, os.getuid())]


def test_an_archive_with_other_owners_is_unpacked_whole_and_is_the_owners_on_the_host(
    sandbox: Sandbox, project: Path
) -> None:
    archive(project / "a.tgz")
    assert sandbox.exec("tar xzf a.tgz").exit_code == 0
    assert kept(project / "package") == WHOLE


def test_pythons_tarfile_keeps_times_and_modes(sandbox: Sandbox, project: Path) -> None:
    archive(project / "a.tgz")
    unpacked = sandbox.exec(["python3", "-c", "import tarfile; tarfile.open('a.tgz').extractall('.')"])
    assert unpacked.exit_code == 0, unpacked.stderr
    assert kept(project / "package") == WHOLE


def test_copies_that_keep_everything_are_made(sandbox: Sandbox, project: Path) -> None:
    (project / "theirs").write_text("x")
    if os.getuid() == 0:
        os.chown(project / "theirs", 1234, 1234)  # whose owner cannot be kept
    copied = sandbox.exec("mkdir -p a/b && touch -d 2001-01-01 a/b/c && cp -a a copy && cp -a theirs ours")
    assert (copied.exit_code, copied.stderr) == (0, "")
    placed = sandbox.exec("install -o $(id -u) -g $(id -g) -m 640 theirs placed && stat -c %a placed")
    assert (placed.exit_code, placed.stdout, placed.stderr) == (0, "640\n", "")
    if shutil.which("rsync"):
        synced = sandbox.exec("rsync -a a/ synced/ && rsync -a theirs synced/ && ls synced/b")
        assert (synced.exit_code, synced.stdout, synced.stderr) == (0, "c\n", "")


def test_a_tenant_is_an_ordinary_user_with_a_name(sandbox: Sandbox) -> None:
    uid = os.getuid() or 1000
    assert sandbox.exec("id -u").stdout.strip() == str(uid)
    assert sandbox.exec("whoami; echo $USER").stdout.split() == [sandbox.exec("id -un").stdout.strip()] * 2


@pytest.mark.process_walls("in a machine it is root of the machine")
def test_a_tenant_can_be_root_by_name_and_has_no_more_power(project: Path) -> None:
    with Sandbox({"user": "root", "filesystem": {"root": str(project)}}) as sandbox:
        assert sandbox.exec("id -u; whoami").stdout.split() == ["0", "root"]
        assert sandbox.exec("grep -h ^Cap /proc/self/status").stdout.replace("0", "").split() == [
            "CapInh:",
            "CapPrm:",
            "CapEff:",
            "CapBnd:",
            "CapAmb:",
        ]
        sandbox.exec("touch made")
    assert (project / "made").stat().st_uid == os.getuid()


GIVING_AWAY = """
import os
open("f", "w").close()
for act in (lambda: os.chown("f", 0 if os.getuid() else 5, -1), lambda: os.chown("f", -1, 4321),
            lambda: os.setuid(4321), lambda: os.setresgid(-1, -1, 4321)):
    try:
        act()
    except PermissionError:
        print("may not")
os.chown("f", os.getuid(), os.getgid())
os.setresuid(os.getuid(), -1, os.geteuid())
print("may")
"""


def test_giving_files_away_is_not_permitted_as_for_any_ordinary_user(sandbox: Sandbox) -> None:
    tried = sandbox.exec(["python3", "-c", GIVING_AWAY])
    assert tried.stdout.splitlines() == ["may not"] * 4 + ["may"], tried.stderr
