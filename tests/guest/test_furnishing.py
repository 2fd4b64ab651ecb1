"""Directories, files, links and mounts that the set-up asks for."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.guest.driver import Place, launch


def furnished(guest: Path, binds: tuple[tuple[str, str], ...] = (), **keys: Any) -> Place:
    place = launch(guest, binds=binds)
    ready = place.setup(uid=1000, gid=1000, **keys)
    assert ready["t"] == "ready", ready
    return place


def test_directories_files_and_links(guest: Path) -> None:
    with furnished(
        guest,
        dirs=[[b"/room/a", 0o750], [b"/room/a/b", 0o700], [b"/room", 0o700]],
        files=[[b"/room/a/f", 0o640, b"text\xff"], [b"/room/a/b/empty", 0o400, b""]],
        mounts=[{"kind": "link", "path": b"/room/l", "target": b"a/f"}],
    ) as place:
        assert place.run("cat", "/room/l").out == b"text\xff"
        assert place.run("stat", "-c", "%a %u", "/room/a", "/room/a/b", "/room/a/f", "/room").out.split() == [
            b"750", b"1000", b"700", b"1000", b"640", b"1000", b"755", b"1000"]  # fmt: skip


def test_a_tmpfs_has_its_size_and_mode(guest: Path) -> None:
    with furnished(
        guest,
        dirs=[[b"/room/t", 0o755]],
        mounts=[{"kind": "tmpfs", "path": b"/room/t", "size": 1 << 20, "mode": 0o1777}],
    ) as place:
        assert place.run("stat", "-c", "%a", "/room/t").out == b"1777\n"
        assert place.run("sh", "-c", "head -c 2000000 /dev/zero > /room/t/x").code != 0
        assert int(place.run("stat", "-c", "%s", "/room/t/x").out) <= 1 << 20
        options = place.run("grep", "/room/t", "/proc/mounts").out
        assert b"nosuid" in options and b"nodev" in options


def test_a_read_only_remount_and_a_size_hold(guest: Path) -> None:
    with furnished(
        guest,
        mounts=[
            {"kind": "remount", "path": b"/room", "ro": True},
            {"kind": "remount", "path": b"/tmp", "size": 1 << 20},
        ],
    ) as place:
        assert b"Read-only" in place.run("sh", "-c", "echo > /room/x").err
        assert place.run("sh", "-c", "head -c 2000000 /dev/zero > /tmp/x").code != 0


def test_a_bind_shows_one_thing_twice_and_may_be_read_only(guest: Path) -> None:
    with furnished(
        guest,
        dirs=[[b"/room/a", 0o755], [b"/room/b", 0o755]],
        files=[[b"/room/a/x", 0o644, b"1"]],
        mounts=[{"kind": "bind", "path": b"/room/b", "from": b"/room/a", "ro": True}],
    ) as place:
        assert place.run("cat", "/room/b/x").out == b"1"
        assert b"Read-only" in place.run("sh", "-c", "echo > /room/b/x").err
        assert place.run("sh", "-c", "echo 2 > /room/a/x; cat /room/b/x").out == b"2\n"


def test_an_overlay_keeps_what_lies_below(guest: Path, tmp_path: Path) -> None:
    lower = tmp_path / "low:er\\dir"
    lower.mkdir()
    (lower / "kept").write_text("old")
    with furnished(
        guest,
        binds=((str(lower), "/tmp/low:er\\dir"),),
        dirs=[[b"/room/up", 0o755], [b"/room/wk", 0o755], [b"/room/m", 0o755]],
        mounts=[
            {
                "kind": "overlay",
                "path": b"/room/m",
                "lower": b"/tmp/low:er\\dir",
                "upper": b"/room/up",
                "work": b"/room/wk",
            }
        ],
    ) as place:
        result = place.run(
            "sh", "-c", "cd /room/m && cat kept && echo new > kept && rm -f nothing && echo more > added && cat kept"
        )
        assert result.out == b"oldnew\n", result
        assert place.run("ls", "/room/up").out.split() == [b"added", b"kept"]
    assert (lower / "kept").read_text() == "old"
    assert os.listdir(lower) == ["kept"]


def test_a_mount_may_be_taken_away(guest: Path) -> None:
    with furnished(guest, mounts=[{"kind": "umount", "path": b"/guest"}, {"kind": "umount", "path": b"/tmp"}]) as place:
        assert place.run("cat", "/guest").out == b""
        assert b" /tmp " not in place.run("cat", "/proc/mounts").out


MASKED = {
    "dirs": [[b"/room/d", 0o755]],
    "files": [[b"/room/.env", 0o644, b"secret"], [b"/room/d/key", 0o644, b"secret"]],
    "mounts": [{"kind": "mask", "path": b"/room/.env"}, {"kind": "mask", "path": b"/room/d", "dir": True}],
}


@pytest.mark.parametrize("uid", [0, 1000])
def test_a_mask_gives_nothing_away_and_cannot_be_undone(guest: Path, uid: int) -> None:
    with launch(guest) as place:
        assert place.setup(uid=uid, gid=uid, **MASKED)["t"] == "ready"
        for attempt in (
            "cat /room/.env", "cat /room/d/key", "ls /room/d", "chmod 777 /room/.env", "chmod 777 /room/d",
            "rm -rf /room/.env",
            "rm -rf /room/d", "mv /room/.env /room/e", "mv /room/d /room/e", "umount /room/.env", "echo x > /room/.env",
            "touch /room/d/new", "ln /room/.env /room/hard", "mount -t tmpfs x /room/d",
            "cp -a /room/.env /room/e; cat /room/e | grep .",
        ):  # fmt: skip
            result = place.run("sh", "-c", attempt)
            assert result.code != 0 and b"secret" not in result.out, (attempt, result)
        assert place.file("read", "/room/.env")[0]["errno"] == errno.EACCES
        assert place.file("list", "/room/d")[0]["errno"] == errno.EACCES


def test_a_mask_moves_along_with_a_renamed_parent(guest: Path) -> None:
    with furnished(guest, dirs=[[b"/room/p", 0o755]], files=[[b"/room/p/.env", 0o644, b"secret"]],
                   mounts=[{"kind": "mask", "path": b"/room/p/.env"}]) as place:  # fmt: skip
        assert b"secret" not in place.run("sh", "-c", "mv /room/p /room/q; cat /room/q/.env /room/p/.env").out


def test_masks_work_on_proc(guest: Path) -> None:
    names = [b"kcore", b"keys", b"timer_list", b"sched_debug", b"latency_stats", b"key-users", b"nowhere"]
    mounts = [{"kind": "mask", "path": b"/proc/" + name, "optional": True} for name in names]
    mounts += [
        {"kind": "mask", "path": b"/proc/" + name, "dir": True, "optional": True}
        for name in (b"scsi", b"acpi", b"asound")
    ]
    with furnished(guest, mounts=mounts) as place:
        assert b"Permission denied" in place.run("cat", "/proc/keys").err
        assert place.run("cat", "/proc/self/comm").out == b"cat\n"


@pytest.mark.parametrize(
    ("mount", "number"),
    [
        ({"kind": "mask", "path": b"/room/nowhere"}, errno.ENOENT),
        ({"kind": "mask", "path": b"/room/link", "optional": True}, errno.ELOOP),
        ({"kind": "mask", "path": b"/room/file", "dir": True}, errno.ENOTDIR),
        ({"kind": "remount", "path": b"/room/file", "ro": True}, errno.EINVAL),
        ({"kind": "bind", "path": b"/room/file", "from": b"/nowhere"}, errno.ENOENT),
        ({"kind": "dance", "path": b"/room/file"}, errno.EINVAL),
        ({"kind": "tmpfs"}, errno.EINVAL),
        ({"path": b"/room/file"}, errno.EINVAL),
    ],
)
def test_what_cannot_be_done_fails_the_set_up(guest: Path, mount: dict[str, object], number: int) -> None:
    with launch(guest) as place:
        answer = place.setup(
            uid=1000,
            gid=1000,
            files=[[b"/room/file", 0o644, b""]],
            mounts=[{"kind": "link", "path": b"/room/link", "target": b"file"}, mount],
        )
        assert (answer["t"], answer["step"], answer["errno"]) == ("failed", "mounts", number)
