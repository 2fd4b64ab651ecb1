"""File operations and dials on the host's behalf, with a tenant's own rights."""

from __future__ import annotations

import errno
import os
import socket
import stat

import pytest

from tests.guest.driver import Place


def failed(answer: tuple[dict[str, object], list[int]]) -> object:
    assert answer[0]["t"] == "failed", answer
    return answer[0]["errno"]


def done(answer: tuple[dict[str, object], list[int]]) -> dict[str, object]:
    assert answer[0]["t"] == "done", answer
    return answer[0]


def test_write_read_and_stat(place: Place) -> None:
    done(place.file("write", "/tmp/a", data=b"hello", mode=0o640))
    done(place.file("write", "/tmp/a", data=b"J", offset=0))
    assert done(place.file("read", "/tmp/a"))["data"] == b"Jello"
    assert done(place.file("read", "/tmp/a", offset=1, size=2))["data"] == b"el"
    done(place.file("write", "/tmp/a", data=b"x", truncate=True))
    found = done(place.file("stat", "/tmp/a"))
    assert (found["size"], found["uid"], found["gid"], found["nlink"]) == (1, 1000, 1000, 1)
    assert stat.S_IMODE(found["mode"]) == 0o640  # type: ignore[arg-type]


def test_open_hands_over_a_descriptor(place: Place) -> None:
    answer, fds = place.file("open", "/tmp/b", flags=os.O_RDWR | os.O_CREAT, mode=0o600)
    assert answer["fds"] == len(fds) == 1
    os.write(fds[0], b"through the wall")
    os.close(fds[0])
    assert place.run("cat", "/tmp/b").out == b"through the wall"


def test_a_fifo_or_a_missing_reader_blocks_nobody_else(place: Place) -> None:
    place.run("mkfifo", "/tmp/fifo")
    assert failed(place.file("open", "/tmp/fifo", flags=os.O_WRONLY)) == errno.ENXIO
    _, fds = place.file("open", "/tmp/fifo", flags=os.O_RDONLY)
    os.close(fds[0])


def test_mkdir_rename_symlink_list_and_remove(place: Place) -> None:
    done(place.file("mkdir", "/tmp/d/e/f", parents=True))
    done(place.file("mkdir", "/tmp/d/e/f", parents=True))
    assert failed(place.file("mkdir", "/tmp/d")) == errno.EEXIST
    assert failed(place.file("mkdir", "/tmp/no/where")) == errno.ENOENT
    done(place.file("write", b"/tmp/d/\xff", data=b"1"))
    done(place.file("rename", b"/tmp/d/\xff", to=b"/tmp/d/g"))
    done(place.file("symlink", "/tmp/d/link", target=b"/etc"))
    listed = done(place.file("list", "/tmp/d"))
    assert listed["cut"] is False
    entries = {entry[0]: entry[1:] for entry in listed["entries"]}  # type: ignore[attr-defined]
    assert set(entries) == {b"e", b"g", b"link"}
    assert stat.S_ISLNK(entries[b"link"][0]) and entries[b"g"][1] == 1
    assert failed(place.file("remove", "/tmp/d")) == errno.ENOTEMPTY
    done(place.file("remove", "/tmp/d", recursive=True))
    assert failed(place.file("stat", "/tmp/d")) == errno.ENOENT


def test_removing_a_tree_never_goes_through_a_link(place: Place) -> None:
    place.run(
        "sh",
        "-c",
        "mkdir -p /tmp/t/s /tmp/keep; echo x > /tmp/keep/x; ln -s /tmp/keep /tmp/t/s/l; ln -s /tmp/keep /tmp/top",
    )
    done(place.file("remove", "/tmp/t", recursive=True))
    done(place.file("remove", "/tmp/top", recursive=True))
    assert place.run("cat", "/tmp/keep/x").out == b"x\n"


@pytest.mark.parametrize("path", ["/tmp/t/.", "/tmp/t/s/..", "/tmp/t/./", "/", "//"])
def test_removing_what_cannot_be_removed_by_that_name_removes_nothing_in_it(place: Place, path: str) -> None:
    place.run("sh", "-c", "mkdir -p /tmp/t/s; echo x > /tmp/t/x")
    assert failed(place.file("remove", path, recursive=True)) == errno.EINVAL
    assert place.run("cat", "/tmp/t/x").out == b"x\n"


def test_stat_follows_or_not(place: Place) -> None:
    place.run("ln", "-s", "/etc/passwd", "/tmp/l")
    assert stat.S_ISREG(done(place.file("stat", "/tmp/l"))["mode"])  # type: ignore[arg-type]
    assert stat.S_ISLNK(done(place.file("stat", "/tmp/l", follow=False))["mode"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["/proc/self/fd/3", "/proc/self/root/etc/passwd", "/proc/self/exe", "/proc/self/cwd/etc"]
)
def test_magic_links_of_the_helper_itself_are_not_followed(place: Place, path: str) -> None:
    place.run("ln", "-sf", path, "/tmp/magic")
    assert failed(place.file("read", "/tmp/magic")) == errno.ELOOP
    assert failed(place.file("open", "/tmp/magic", flags=os.O_RDONLY)) == errno.ELOOP


def test_a_link_cannot_turn_a_write_against_the_helper(place: Place) -> None:
    place.run("ln", "-sf", "/proc/self/mem", "/tmp/mem")
    assert failed(place.file("open", "/tmp/mem", flags=os.O_RDWR)) in (errno.EACCES, errno.EROFS)
    assert failed(place.file("write", "/tmp/mem", data=b"x", offset=0x400000)) in (errno.EACCES, errno.EROFS)


@pytest.mark.parametrize(
    "request_",
    [{"op": "dance", "path": b"/"}, {"op": "read"}, {"path": b"/"}, {"op": "read", "path": b"/a\0b"},
     {"op": "read", "path": b"/etc/passwd", "size": 1 << 30}, {"op": "write", "path": b"/tmp/a", "data": 5},
     {"op": "rename", "path": b"/tmp/a"}, {"op": "stat", "path": 7}],
)  # fmt: skip
def test_an_invalid_request_is_refused(place: Place, request_: dict[str, object]) -> None:
    assert failed(place.request({"t": "file", **request_})) in (errno.EINVAL, errno.ENOSYS)
    assert place.run("true").code == 0


def test_a_long_list_is_cut_not_refused(place: Place) -> None:
    place.python(
        "import os\nos.mkdir('/tmp/many')\n"
        "for i in range(20000): os.close(os.open('/tmp/many/' + 'x' * 240 + str(i), os.O_CREAT))"
    )
    listed = done(place.file("list", "/tmp/many"))
    assert listed["cut"] is True and len(listed["entries"]) > 10000  # type: ignore[arg-type]


def test_dial_reaches_a_tenants_listener(place: Place) -> None:
    command = place.start("/usr/bin/python3", "-u", "-c",
        "import socket\ns = socket.create_server(('127.0.0.1', 80))\nprint('up')\n"
        "c, _ = s.accept()\nc.sendall(c.recv(9).upper())")  # fmt: skip
    command.started()
    os.read(command.stdout, 3)
    answer, fds = place.request({"t": "dial", "family": 4, "address": "127.0.0.1", "port": 80})
    assert answer["fds"] == 1
    with socket.socket(fileno=fds[0]) as connection:
        connection.sendall(b"hello")
        assert connection.recv(9) == b"HELLO"
    assert command.wait().code == 0
    assert failed(place.request({"t": "dial", "family": 4, "address": "127.0.0.1", "port": 81})) == errno.ECONNREFUSED
    assert failed(place.request({"t": "dial", "family": 6, "address": "nonsense", "port": 81})) == errno.EINVAL


def test_dial_reaches_a_tenants_unix_socket_by_its_path(place: Place) -> None:
    command = place.start("/usr/bin/python3", "-u", "-c",
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('/tmp/door')\ns.listen()\nprint('up')\n"
        "c, _ = s.accept()\nc.sendall(c.recv(9).upper())")  # fmt: skip
    command.started()
    os.read(command.stdout, 3)
    _, fds = place.request({"t": "dial", "family": 1, "address": "/tmp/door", "port": 0})
    with socket.socket(fileno=fds[0]) as connection:
        connection.sendall(b"hello")
        assert connection.recv(9) == b"HELLO"
    assert command.wait().code == 0
    for path, error in (("/tmp/none", errno.ENOENT), ("tmp/door", errno.EINVAL), ("/" + "x" * 200, errno.EINVAL)):
        assert failed(place.request({"t": "dial", "family": 1, "address": path, "port": 0})) == error


TMPFS_HAS_ATTRIBUTES = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 6)


@pytest.mark.skipif(not TMPFS_HAS_ATTRIBUTES, reason="tmpfs has attributes of users since Linux 6.6")
def test_attributes_of_files_are_set_read_listed_and_removed(place: Place) -> None:
    done(place.file("write", "/tmp/with", data=b"x"))
    done(place.file("write", "/tmp/without", data=b"x"))
    done(place.file("set_attribute", "/tmp/with", name=b"user.a.key", value=b"\xff value"))
    done(place.file("set_attribute", "/tmp/with", name=b"user.b", value=b""))
    told = done(place.file("attributes", "/tmp/with", prefix=b"user.a."))
    assert (told["attributes"], told["cut"]) == ([[b"user.a.key", b"\xff value"]], False)
    assert done(place.file("attributes", "/tmp/without", prefix=b"user."))["attributes"] == []
    below = done(place.file("attributes", "/tmp", prefix=b"user.a.", below=True))["attributes"]
    assert below == [[b"with", [[b"user.a.key", b"\xff value"]]]]
    done(place.file("set_attribute", "/tmp/with", name=b"user.a.key"))
    assert done(place.file("attributes", "/tmp/with", prefix=b"user.a"))["attributes"] == []


@pytest.mark.parametrize("name", [b"security.capability", b"trusted.x", b"system.posix_acl_access", b"user", b""])
def test_only_attributes_of_users_are_touched(place: Place, name: bytes) -> None:
    done(place.file("write", "/tmp/x", data=b"x"))
    assert failed(place.file("set_attribute", "/tmp/x", name=name, value=b"x")) == errno.EPERM
    assert failed(place.file("attributes", "/tmp/x", prefix=name)) == errno.EPERM


def test_attributes_are_bounded_and_not_those_of_the_guests_own_files(place: Place) -> None:
    done(place.file("write", "/tmp/y", data=b"x"))
    assert failed(place.file("set_attribute", "/tmp/y", name=b"user.x", value=b"x" * 4097)) == errno.EINVAL
    assert failed(place.file("set_attribute", "/proc/self/fd/0", name=b"user.x", value=b"x")) == errno.ELOOP
    assert failed(place.file("set_attribute", "/proc/self/comm", name=b"user.x", value=b"x")) == errno.EACCES
    assert failed(place.file("attributes", "/tmp/nothing", prefix=b"user.")) == errno.ENOENT
