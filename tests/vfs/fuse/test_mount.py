"""What a program sees of a FUSE mount, whatever is behind it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import Denied, WallError
from sandbox.vfs.fuse import mount as mounting
from sandbox.vfs.fuse.mount import open_device
from sandbox.vfs.hooks import HookedProvider
from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.overlay import OverlayProvider
from sandbox.vfs.provider import DirEntry, FileInfo, Handle, Provider, failure
from sandbox.vfs.readonly import ReadonlyProvider
from sandbox.vfs.realfs import RealFSProvider
from sandbox.vfs.router import MountRouter
from tests.vfs.conftest import MountPoint

Mount = Callable[..., MountPoint]

PYTHON = "/usr/bin/python3"


def test_a_shell_feels_at_home(mount: Mount, provider: Provider) -> None:
    point = mount(provider)
    script = r"""
        set -e
        echo one > a; echo two >> a; cp a b; mv b c; mkdir -p d/e; mv c d/e; ln -s e d/l; cat d/l/c
        ln a hard; rm a; cat hard
        chmod 600 hard; stat -c %a hard; touch -d @1000000000 hard; stat -c %Y hard
        truncate -s 100000 hard; stat -c %s hard; mv d moved; cat moved/e/c; rm -r moved; ls
    """
    lines = point.out(script).split()
    assert lines[:4] == ["one", "two", "one", "two"]
    assert lines[4:9] == ["600", "1000000000", "100000", "one", "two"]
    assert set(lines[9:]) == {"hard"} | ({"elsewhere"} if isinstance(provider, MountRouter) else set())


def test_large_files_arrive_whole(mount: Mount, provider: Provider, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(os.urandom(5_000_001))
    mount(provider).out(f"cp {tmp_path}/data copy; cmp copy {tmp_path}/data; sync copy; cp copy {tmp_path}/back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "data").read_bytes()


def test_a_program_that_is_written_to_is_no_longer_setuid(mount: Mount, provider: Provider) -> None:
    point = mount(provider)
    script = (
        "chown 65534 . 2>/dev/null; chmod 777 .; echo x > f; chmod 4755 f; "
        "[ $(stat -c %a f) = 4755 ] || { echo 755; exit; }; chmod a+w f; "
        "setpriv --reuid 65534 --clear-groups sh -c 'echo more >> f'; stat -c %a f"
    )
    assert not int(point.out(script), 8) & 0o7000


def test_space_can_be_allocated_and_holes_be_punched(mount: Mount, provider: Provider) -> None:
    point = mount(provider)
    script = r"""
        set -e
        printf abcdefgh > f
        fallocate -l 100000 f; stat -c %s f             # grows, keeps what was there
        fallocate -p -o 2 -l 3 f; head -c 8 f | tr '\0' -; echo
        fallocate -z -o 99999 -l 11 f; stat -c %s f
        fallocate -p -o 0 -l 1000000 f; stat -c %s f    # never beyond the end
        fallocate -l 10 f; stat -c %s f                 # never shrinks
        fallocate -n -l 200000 f 2>/dev/null || echo refused
    """
    assert point.out(script).split() == ["100000", "ab---fgh", "100010", "100010", "100010", "refused"]


def test_files_can_be_mapped_into_memory(mount: Mount, provider: Provider) -> None:
    program = """
import mmap, os
fd = os.open("m", os.O_RDWR | os.O_CREAT, 0o644); os.ftruncate(fd, 8192)
with mmap.mmap(fd, 8192) as m: m[5000:5005] = b"hello"; m.flush()
os.close(fd)
data = open("m", "rb").read(); assert data[5000:5005] == b"hello" and len(data) == 8192
"""
    mount(provider).out(f"{PYTHON} -c '{program}'")


def test_an_open_file_without_a_name_still_works(mount: Mount, provider: Provider) -> None:
    program = """
import os
fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644); os.write(fd, b"12345"); os.unlink("f")
assert os.fstat(fd).st_size == 5 and os.pread(fd, 9, 0) == b"12345"
os.ftruncate(fd, 3); assert os.fstat(fd).st_size == 3 and os.pread(fd, 9, 0) == b"123"
os.close(fd); assert not os.path.exists("f")
"""
    mount(provider).out(f"{PYTHON} -c '{program}'")


def test_locks_work(mount: Mount, provider: Provider) -> None:
    program = """
import fcntl, os
a, b = open("lock", "w"), open("lock", "w")
fcntl.flock(a, fcntl.LOCK_EX)
try: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB); raise SystemExit("got it twice")
except BlockingIOError: pass
fcntl.lockf(a, fcntl.LOCK_EX)
"""
    mount(provider).out(f"{PYTHON} -c '{program}'")


def test_big_directories_are_listed_completely(mount: Mount) -> None:
    provider = MemoryProvider()
    for number in range(5000):
        provider.write_file(f"/d/file-{number:05}", b"")
    point = mount(provider)
    assert point.out("ls d | wc -l; find d -type f | wc -l; ls -l d | wc -l").split() == ["5000", "5000", "5001"]


def test_many_programs_at_once(mount: Mount, provider: Provider) -> None:
    script = """
        for i in 1 2 3 4 5 6 7 8; do
            ( mkdir d$i; for j in 1 2 3 4 5 6 7 8 9 10; do echo $i-$j > d$i/$j; done; cat d$i/* | wc -l ) &
        done; wait
    """
    assert mount(provider).out(script).split() == ["10"] * 8


def test_a_read_only_mount_refuses_every_change(mount: Mount) -> None:
    below = MemoryProvider()
    below.write_file("/a", "kept")
    point = mount(ReadonlyProvider(below))
    for change in ("echo x > a", "echo x > new", "rm a", "mkdir d", "mv a b", "ln -s x l", "chmod 777 a", "touch a"):
        done = point.sh(change)
        assert done.returncode != 0
        assert "Read-only" in done.stderr
    assert point.out("cat a") == "kept"


def test_a_provider_that_says_it_is_readonly_is_not_emptied_by_opening(mount: Mount) -> None:
    class Careless(MemoryProvider):
        readonly = True

    careless = Careless()
    careless.write_file("/a", "kept")
    point = mount(careless)
    assert "Read-only" in point.sh("echo x > a").stderr
    assert "Read-only" in point.sh(": >> a").stderr
    assert point.out("cat a") == "kept"


def test_an_overlay_keeps_the_host_directory_as_it_was(mount: Mount, tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "d").mkdir(parents=True)
    (base / "a").write_text("a")
    (base / "d/x").write_text("x")
    point = mount(OverlayProvider(MemoryProvider(), RealFSProvider(str(base))))
    out = point.out("echo more >> a; rm -r d; mkdir d; ls d; echo y > d/y; mv d e; cat a e/y; ls")
    assert out.split() == ["amore", "y", "a", "e"]
    assert sorted(path.name for path in base.rglob("*")) == ["a", "d", "x"]


def test_hooks_see_and_refuse(mount: Mount) -> None:
    seen: list[tuple[object, ...]] = []

    class Hooks:
        def before_open(self, path: str, flags: int) -> None:
            seen.append(("open", path))
            if path.endswith("forbidden"):
                raise Denied("no-such-reading", "this file is not for you")

        def after_write(self, path: str, count: int) -> None:
            seen.append(("wrote", path, count))

    below = MemoryProvider()
    below.write_file("/forbidden", "secret")
    point = mount(HookedProvider(below, Hooks(), mount="/workspace"))
    done = point.sh("cat forbidden")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Permission denied" in done.stderr
    point.out("printf 12345 > new; cat new")
    assert ("wrote", "/workspace/new", 5) in seen
    assert ("open", "/workspace/new") in seen


def test_changes_made_on_the_host_are_seen(mount: Mount, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/a").write_text("one")
    provider = RealFSProvider(str(tmp_path / "shared"))
    provider.cache_seconds = 0
    point = mount(provider)
    assert point.out("cat a") == "one"
    (tmp_path / "shared/a").write_text("another")
    (tmp_path / "shared/b").write_text("two")
    assert point.out("cat a b; rm b; ls") == "anothertwoa\n"


class GeneratedProvider(Provider):
    """The seed's custom provider in small: names and contents that exist nowhere else, three methods in all."""

    objects = {"report.txt": b"from a bucket", "empty": b""}

    def stat(self, path: str) -> FileInfo:
        if path == "/":
            return FileInfo(mode=stat.S_IFDIR | 0o755)
        try:
            return FileInfo(size=len(self.objects[path[1:]]), mode=0o444)
        except KeyError:
            raise failure(2, path) from None

    def readdir(self, path: str) -> list[DirEntry]:
        return [DirEntry(name) for name in self.objects]

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        return GeneratedHandle(self.objects[path[1:]])


class GeneratedHandle(Handle):
    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, size: int, offset: int) -> bytes:
        return self.content[offset : offset + size]


def test_a_provider_of_your_own_needs_three_methods(mount: Mount) -> None:
    point = mount(GeneratedProvider())
    assert point.out("ls; cat report.txt empty") == "empty\nreport.txt\nfrom a bucket"
    assert point.sh("ls nothing").returncode != 0
    assert "Read-only" in point.sh("touch new").stderr


def test_without_the_device_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(WallError, match="modprobe fuse"):
        open_device(str(tmp_path / "none"))
    problem = PermissionError(13, "Permission denied")
    assert "chmod 0666 /dev/fuse" in mounting.unavailable("/dev/fuse", problem)


def test_a_tree_deeper_than_any_path_ends_with_an_error(mount: Mount) -> None:
    program = """
import errno, os
depth = 0
try:
    while True: os.mkdir("deeper"); os.chdir("deeper"); depth += 1
except OSError as problem: print(errno.errorcode[problem.errno], 500 < depth < 700)
"""
    point = mount(MemoryProvider())
    assert point.out(f"{PYTHON} -c '{program}'; mv deeper other; ls other") == "ENAMETOOLONG True\ndeeper\n"
