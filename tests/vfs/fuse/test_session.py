"""A provider that raises, hangs or lies gives the tenant an error, and nothing else."""

from __future__ import annotations

import stat
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from threading import Barrier, Event

import pytest

from sandbox.vfs.fuse.session import MOST_STUCK
from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.provider import DirEntry, FileInfo, Handle
from tests.vfs.conftest import MountPoint

Mount = Callable[..., MountPoint]


def well(point: MountPoint) -> bool:
    """Whether the mount still does what it should."""
    return point.out("echo fine > well; cat well; rm well") == "fine\n"


def well_again(point: MountPoint) -> bool:
    """The same where what is fine may be late, too: of a mount with a short deadline, on a busy machine."""
    point.sh("until echo fine > well && cat well && rm well; do :; done", timeout=60)
    return True


class Raising(MemoryProvider):
    def stat(self, path: str) -> FileInfo:
        if path == "/bad":
            raise ZeroDivisionError("a bug in somebody's provider")
        if path == "/worse":
            raise SystemExit("a very bad idea")
        if path == "/odd":
            raise OSError("without a number")
        return super().stat(path)


def test_a_provider_that_raises_is_an_input_output_error(mount: Mount) -> None:
    heard: list[str] = []
    point = mount(Raising(), report=heard.append)
    for name in ("bad", "worse", "odd", "bad"):
        assert "Input/output error" in point.sh(f"cat {name}").stderr
    assert well(point)
    # Told once each: a tenant can repeat it as often as it likes.
    assert heard == [
        "a file provider raised ZeroDivisionError: a bug in somebody's provider",
        "a file provider raised SystemExit: a very bad idea",
    ]


class Hanging(MemoryProvider):
    def __init__(self) -> None:
        super().__init__()
        self.released = Event()
        self.reached = Event()

    def stat(self, path: str) -> FileInfo:
        if path.startswith("/hang"):
            self.reached.set()
            self.released.wait()
        return super().stat(path)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    provider = Hanging()
    yield provider
    provider.released.set()


def test_a_provider_that_hangs_is_a_timeout_and_the_mount_lives(mount: Mount, hanging: Hanging) -> None:
    point = mount(hanging, deadline=0.2)
    # More of them than there are threads at first.
    script = "for i in $(seq 20); do cat hang$i & done; wait"
    assert point.sh(script).stderr.count("Connection timed out") == 20
    assert well_again(point)


def test_a_provider_that_hangs_repeatedly_is_not_asked_any_more(mount: Mount, hanging: Hanging) -> None:
    point = mount(hanging, deadline=0.1)
    failed = point.sh(f"for i in $(seq {MOST_STUCK + 20}); do cat hang$i & done; wait; echo x > other").stderr
    assert failed.count("Connection timed out") >= MOST_STUCK
    assert "Input/output error" in failed or "I/O error" in failed
    hanging.released.set()
    assert well_again(point)  # once the threads have come back


def test_others_are_served_while_a_provider_hangs(mount: Mount, hanging: Hanging) -> None:
    point = mount(hanging)
    # In another directory: the kernel itself lets nobody change one in which somebody looks for a name.
    script = "mkdir d; for i in 1 2 3 4 5; do (cat hang$i >/dev/null 2>&1 &) ; done; echo yes > d/other; cat d/other"
    assert point.out(script) == "yes\n"
    hanging.released.set()
    assert well(point)


class Meeting(MemoryProvider):
    """Answers for `meet…` only once several ask at the same time."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self.barrier = Barrier(parties)

    def stat(self, path: str) -> FileInfo:
        if path.startswith("/meet"):
            self.barrier.wait(20)
        return super().stat(path)


def test_a_slow_provider_is_asked_many_things_at_once(mount: Mount) -> None:
    point = mount(Meeting(8))
    script = "for i in 1 2 3 4 5 6 7 8; do cat meet$i & done; wait"
    for _ in range(3):  # the later rounds find threads that wait for work
        assert point.sh(script).stderr.count("No such file") == 8
    assert well(point)


def test_a_program_that_waits_for_a_hanging_provider_can_be_killed(mount: Mount, hanging: Hanging) -> None:
    point = mount(hanging)
    # `timeout` kills it after a moment and says 137; were it not killable, this would wait for the provider.
    done = point.sh("timeout -s KILL 0.5 cat hang; echo $?", timeout=60)
    assert done.stdout == "137\n"
    assert hanging.reached.is_set()
    hanging.released.set()
    assert well(point)


class Slow(MemoryProvider):
    def stat(self, path: str) -> FileInfo:
        if path == "/slow":
            Event().wait(0.4)
        return super().stat(path)


def test_a_program_that_handles_a_signal_meanwhile_gets_its_answer(mount: Mount) -> None:
    point = mount(Slow())
    script = """
        import ctypes, signal
        libc = ctypes.CDLL(None, use_errno=True)
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        print(libc.mkdir(b"d", 0o755), libc.chdir(b"slow"), ctypes.get_errno())
    """
    assert point.out(f"/usr/bin/python3 -c '{textwrap.dedent(script)}'") == "0 -1 2\n"  # ENOENT: there is none
    assert well(point)


class LyingHandle(Handle):
    def read(self, size: int, offset: int) -> bytes:
        return b"x" * (size + 1)

    def write(self, data: memoryview, offset: int) -> int:
        return len(data) + 1000


class Lying(MemoryProvider):
    """Claims what cannot be."""

    sizes = {"/negative": -1, "/huge": 1 << 64, "/text": "large"}
    names = ("a/b", "", "..", "nul\0", "x" * 300)

    def stat(self, path: str) -> FileInfo:
        if path in self.sizes:
            return FileInfo(size=self.sizes[path])  # type: ignore[arg-type]
        if path == "/more":
            return FileInfo(size=10)
        if path == "/nothing":
            return None  # type: ignore[return-value]
        if path.startswith("/list"):
            return FileInfo(mode=stat.S_IFDIR | 0o755)
        return super().stat(path)

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        if path == "/more":
            return LyingHandle()
        if path == "/nohandle":
            return None  # type: ignore[return-value]
        return super().open(path, flags, mode)

    def readdir(self, path: str) -> Iterator[DirEntry]:  # type: ignore[override]
        if path == "/list-endless":
            return (DirEntry(f"{number:0200}") for number in count())
        if path.startswith("/list-"):
            return iter([DirEntry(self.names[int(path[6:])])])
        return iter(super().readdir(path))


@pytest.mark.parametrize("name", ["negative", "huge", "text", "nothing"])
def test_impossible_attributes_are_an_error(mount: Mount, name: str) -> None:
    point = mount(Lying(), report=lambda text: None)
    assert point.sh(f"stat {name}").returncode != 0
    assert well(point)


def test_more_bytes_than_asked_for_are_an_error(mount: Mount) -> None:
    point = mount(Lying(), report=lambda text: None)
    assert "Input/output error" in point.sh("cat more").stderr
    assert "I/O error" in point.sh("echo x > more").stderr
    assert well(point)


@pytest.mark.parametrize("number", range(len(Lying.names)))
def test_impossible_names_are_an_error(mount: Mount, number: int) -> None:
    point = mount(Lying(), report=lambda text: None)
    assert "Input/output error" in point.sh(f"ls list-{number}").stderr
    assert well(point)


def test_an_endless_directory_ends(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.vfs.fuse.directory.MAX_ENTRIES", 20_000)
    point = mount(Lying(), report=lambda text: None)
    assert "Input/output error" in point.sh("ls -U list-endless").stderr
    assert well(point)


def test_a_provider_whose_root_is_not_a_directory_is_an_error(mount: Mount) -> None:
    class Flat(MemoryProvider):
        def stat(self, path: str) -> FileInfo:
            return FileInfo(size=1)

    done = mount(Flat()).sh("ls -la .")
    assert done.returncode != 0


def test_everything_the_kernel_knew_is_forgotten_in_the_end(mount: Mount) -> None:
    from sandbox.vfs.fuse.mount import Mounted

    provider = MemoryProvider()
    point = mount(MemoryProvider())
    with Mounted(str(point.path), provider) as mounted:
        point.out("for i in $(seq 200); do echo $i > $i; done; ls -l > /dev/null; rm *")
        nodes = mounted.session._operations.tree.nodes
        # What is left: the root, and what the kernel has not got round to yet.
        assert len(nodes) < 50
        assert provider.statfs().files - provider.statfs().files_free == 1
    assert mounted.session.close(0)
