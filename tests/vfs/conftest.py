"""Providers of every kind, and mounts for those who may mount."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandbox.vfs.fuse.mount import Mounted
from sandbox.vfs.hooks import HookedProvider
from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.overlay import OverlayProvider
from sandbox.vfs.provider import Provider
from sandbox.vfs.provider_server import serve
from sandbox.vfs.realfs import RealFSProvider
from sandbox.vfs.remote_provider import RemoteProvider
from sandbox.vfs.router import MountRouter


class Nosy:
    """Hooks that look at everything and mind nothing."""

    def before_open(self, path: str, flags: int) -> None: ...
    def before_write(self, path: str, size: int, offset: int) -> None: ...
    def after_write(self, path: str, count: int) -> None: ...
    def after_stat(self, path: str) -> None: ...


class Writeback(MemoryProvider):
    """Files in memory whose small writes the kernel may join."""

    writeback = True


def _realfs(place: Path, name: str) -> RealFSProvider:
    (place / name).mkdir()
    return RealFSProvider(str(place / name))


def _remote(stack: ExitStack) -> Provider:
    from threading import Thread

    ours, theirs = socket.socketpair()
    thread = Thread(target=serve, args=(MemoryProvider(), theirs))
    thread.start()

    def end() -> None:
        ours.close()
        thread.join()
        theirs.close()

    stack.callback(end)
    return RemoteProvider(ours)


KINDS: dict[str, Callable[[Path, ExitStack], Provider]] = {
    "memory": lambda place, stack: MemoryProvider(),
    "writeback": lambda place, stack: Writeback(),
    "realfs": lambda place, stack: _realfs(place, "real"),
    "overlay of memory": lambda place, stack: OverlayProvider(MemoryProvider(), MemoryProvider()),
    "overlay of directories": lambda place, stack: OverlayProvider(_realfs(place, "u"), _realfs(place, "l")),
    "router": lambda place, stack: MountRouter({"/": MemoryProvider(), "/elsewhere": MemoryProvider()}),
    "hooked": lambda place, stack: HookedProvider(MemoryProvider(), Nosy()),
    "remote": lambda place, stack: _remote(stack),
}


@pytest.fixture(params=list(KINDS))
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """An empty, writable provider of each kind."""
    with ExitStack() as stack:
        made = KINDS[request.param](tmp_path, stack)
        yield made


class MountPoint:
    """A directory with a provider behind it. It is looked at by programs only: this very process serves it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sh(self, script: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Runs a shell script in the directory."""
        # Not cwd=: Python would hold its global lock while the child changes into a directory that we serve.
        argv = ["/bin/sh", "-c", f'cd "$1" && {{ {script}\n}}', "sh", str(self.path)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)

    def out(self, script: str, timeout: float = 120) -> str:
        done = self.sh(script, timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., MountPoint]]:
    """Mounts providers on this host; needs root, as mounting does."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("mounting on the host needs root and /dev/fuse")
    with ExitStack() as stack:

        def make(provider: Provider, **options: object) -> MountPoint:
            place = tmp_path / f"mnt{len(list(tmp_path.glob('mnt*')))}"
            place.mkdir()
            stack.enter_context(Mounted(str(place), provider, **options))  # type: ignore[arg-type]
            return MountPoint(place)

        yield make
