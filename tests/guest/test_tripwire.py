"""Masks that tell: what the guest answers for them, and what it says."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

import pytest

from tests.guest.driver import Place, launch

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="/dev/fuse cannot be opened")

DEVICE = ("--dev-bind", "/dev/fuse", "/fuse")
WIRE = {"kind": "mask", "tripwire": True, "device": b"/fuse"}


def wired(guest: Path, uid: int = 1000, **keys: Any) -> Place:
    place = launch(guest, options=DEVICE)
    setup = {
        "dirs": [[b"/room/d", 0o755]],
        "files": [[b"/room/.env", 0o644, b"secret"], [b"/room/d/key", 0o644, b"secret"], [b"/room/open", 0o644, b"x"]],
        "mounts": [{**WIRE, "path": b"/room/.env"}, {**WIRE, "path": b"/room/d", "dir": True},
                   {"kind": "umount", "path": b"/fuse", "remove": True}],
        "writable": [b"/room", b"/tmp", b"/dev", b"/proc"],
    }  # fmt: skip
    ready = place.setup(uid=uid, gid=uid, **setup | keys)
    assert ready["t"] == "ready", ready
    return place


def silent(place: Place) -> bool:
    """Nothing was said. A command that has ended said all it had to before."""
    return not select.select([place.stream.socket], [], [], 0)[0]


@pytest.mark.parametrize(
    ("attempt", "path", "op", "name"),
    [
        ("cat /room/.env", b"/room/.env", "read", None),
        ("exec 3<>/room/.env", b"/room/.env", "write", None),
        ("echo x > /room/.env", b"/room/.env", "write", None),
        ("chmod 777 /room/.env", b"/room/.env", "write", None),
        ("ls /room/d", b"/room/d", "list", None),
        ("cat /room/d/key", b"/room/d", "lookup", b"key"),
        ("mkdir /room/d/new", b"/room/d", "lookup", b"new"),
        ("ln -s /room/.env /tmp/l; cat /tmp/l", b"/room/.env", "read", None),
        ("cat /proc/self/root/room/.env", b"/room/.env", "read", None),
    ],
)
def test_an_attempt_is_refused_and_reported(
    guest: Path, attempt: str, path: bytes, op: str, name: bytes | None
) -> None:
    with wired(guest) as place:
        assert place.ready["have"]["tripwires"] == 2
        result = place.run("sh", "-c", attempt)
        assert result.code != 0 and b"secret" not in result.out and b"Permission denied" in result.err, result
        told = place.stream.receive()
        assert (told["t"], told["path"], told["op"], told.get("name")) == ("tripped", path, op, name)
        assert told["pid"] > 1 and told["comm"] in ("sh", "cat", "chmod", "ls", "mkdir")


def test_a_look_is_not_reported(guest: Path) -> None:
    with wired(guest) as place:
        looks = "stat -c '%A %s %u' /room/.env /room/d; test -r /room/.env || ls -l /room >/dev/null; cd /room/d"
        assert place.run("sh", "-c", looks).out == b"---------- 0 1000\nd--------- 0 1000\n"
        assert place.run("cat", "/room/open").out == b"x"
        assert silent(place)


@pytest.mark.parametrize("uid", [0, 1000])
def test_it_is_as_strong_as_a_mask(guest: Path, uid: int) -> None:
    with wired(guest, uid) as place:
        for attempt in (
            "chmod 777 /room/.env /room/d; cat /room/.env /room/d/key", "rm -rf /room/.env", "rm -rf /room/d",
            "mv /room/.env /room/e", "mv /room/d /room/e", "umount /room/.env", "ln /room/.env /room/hard",
            "touch /room/.env", "truncate -s 0 /room/.env", "unshare -rm umount /room/.env", "ls /fuse", "/room/.env",
            "mount -t tmpfs x /room/d", "cp -a /room/.env /room/e; grep . /room/e",
        ):  # fmt: skip
            result = place.run("sh", "-c", attempt)
            assert result.code != 0 and b"secret" not in result.out, (attempt, result)
        assert place.run("sh", "-c", "grep -l fuse /proc/*/maps; ls -l /proc/*/fd | grep fuse").out == b""


def test_a_name_that_is_not_text_becomes_text(guest: Path) -> None:
    with wired(guest) as place:
        code = r"import ctypes; ctypes.CDLL(None).prctl(15, b'\xff\x1b[31m'); open('/room/.env')"
        assert b"PermissionError" in (failed := place.python(code)).err, failed
        assert place.stream.receive()["comm"] == "??[31m"


def test_a_flood_is_reported_a_few_times_and_the_guest_continues(guest: Path) -> None:
    code = """if 1:
        for _ in range(20000):
            try: open('/room/.env')
            except PermissionError: pass
    """
    with wired(guest) as place:
        flood = place.start("/usr/bin/python3", "-c", code)
        assert flood.started()["t"] == "started"
        assert place.run("echo", "meanwhile").out == b"meanwhile\n"
        assert flood.wait().code == 0
        told = 0
        while not silent(place):
            told += place.stream.receive()["t"] == "tripped"
        assert told == 16


def test_a_reader_that_is_killed_is_forgotten(guest: Path) -> None:
    with wired(guest) as place:
        code = "for i in 1 2 3 4 5 6 7 8; do (while :; do cat /room/.env /room/d/key; done) & done; wait"
        command = place.start("sh", "-c", f"exec 2>/dev/null; {code}")
        command.started()
        place.stream.receive()
        command.line.send({"t": "cancel"})
        assert command.wait().exit["signal"] == 9
        assert place.run("cat", "/room/open").out == b"x"
        assert place.run("cat", "/room/.env").code == 1
        place.start("sh", "-c", f"exec 2>/dev/null; {code}").started()
        assert place.close() == 0


def test_more_than_sixty_four_are_plain_masks(guest: Path) -> None:
    names = [b"/room/%d" % n for n in range(70)]
    with wired(
        guest,
        files=[[name, 0o644, b"secret"] for name in names],
        dirs=[],
        mounts=[{**WIRE, "path": name} for name in names],
    ) as place:
        assert place.ready["have"]["tripwires"] == 64
        assert b"secret" not in place.run("sh", "-c", "cat /room/*").out
        assert place.run("sh", "-c", "grep -c ' /room/.*fuse' /proc/mounts").out == b"64\n"


def test_without_the_device_it_is_a_plain_mask(guest: Path) -> None:
    mount = {**WIRE, "path": b"/room/.env", "device": b"/nowhere"}
    with wired(guest, mounts=[mount]) as place:
        assert place.ready["have"]["tripwires"] == 0
        assert b"Permission denied" in place.run("cat", "/room/.env").err


def test_a_place_for_one_can_be_made(guest: Path) -> None:
    mounts = [{**WIRE, "path": b"/room/.ssh/id_rsa", "dir": False, "make": True}]
    with wired(guest, mounts=mounts) as place:
        assert place.run("sh", "-c", "cat /room/.ssh/id_rsa || echo own > /room/.ssh/known_hosts").code == 0
        assert place.stream.receive()["path"] == b"/room/.ssh/id_rsa"


@pytest.mark.parametrize(
    ("then", "missed"),
    [
        ({"mounts": [{**WIRE, "path": b"/room/.env", "inode": 12345}]}, 1),
        ({"mounts": [{"kind": "mask", "path": b"/room/.env"}]}, 0),
        ({"mounts": [{"kind": "mask", "path": b"/room/d/key", "optional": True, "inode": 1}]}, 1),
        ({"mounts": [{"kind": "bind", "from": b"/room/d/key", "path": b"/room/c", "make": True, "optional": True}]}, 0),
        ({"mounts": [{"kind": "bind", "from": b"/room/d", "path": b"/room/copy", "make": True}]}, 0),
        ({"writable": [b"/room/d", b"/room/.env", b"/dev"]}, 0),
    ],
)
def test_a_path_that_leads_to_a_tripwire_during_the_set_up_does_not_make_it_wait(
    guest: Path, then: dict[str, Any], missed: int
) -> None:
    """As when somebody on the host renames a directory over another between two mounts: nobody answers yet."""
    first = [{**WIRE, "path": b"/room/.env"}, {**WIRE, "path": b"/room/d", "dir": True}]
    with wired(guest, **then | {"mounts": [*first, *then.get("mounts", [])]}) as place:
        assert place.ready["have"]["missed"] == missed
        for path in ("/room/.env", "/room/d/key", *(["/room/copy/key"] if "copy" in str(then) else [])):
            result = place.run("cat", path)
            assert b"secret" not in result.out and b"Permission denied" in result.err, result
