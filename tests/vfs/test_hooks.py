"""A user's code before and after every operation."""

from __future__ import annotations

import os

import pytest

from sandbox.errors import Denied
from sandbox.hook_names import OPERATIONS
from sandbox.vfs.hooks import HookedProvider, has_hooks
from sandbox.vfs.memory import MemoryProvider


class Recorder:
    """Has every hook there is."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> object:
        when, _, operation = name.partition("_")
        if when not in ("before", "after") or operation not in OPERATIONS:
            raise AttributeError(name)
        return lambda *arguments: self.calls.append((name, *arguments))


def everything(provider: HookedProvider) -> None:
    provider.mkdir("/d", 0o755)
    handle = provider.create("/d/f", 0o644)
    handle.write(memoryview(b"12345"), 0)
    handle.sync()
    handle.close()
    handle = provider.open("/d/f", os.O_RDONLY)
    handle.read(3, 1)
    handle.close()
    provider.stat("/d/f")
    list(provider.readdir("/d"))
    provider.setattr("/d/f", mode=0o600)
    provider.rename("/d/f", "/d/g")
    provider.link("/d/g", "/d/h")
    provider.symlink("g", "/d/l")
    provider.readlink("/d/l")
    provider.mknod("/d/p", 0o010644)
    provider.setxattr("/d/g", "user.x", b"v", 0)
    provider.getxattr("/d/g", "user.x")
    provider.listxattr("/d/g")
    provider.removexattr("/d/g", "user.x")
    provider.remove("/d/g")


def test_every_operation_is_hooked_before_and_after() -> None:
    hooks = Recorder()
    everything(HookedProvider(MemoryProvider(), hooks, mount="/workspace"))
    called = [call[0] for call in hooks.calls]
    assert set(called) == {f"{when}_{name}" for name in OPERATIONS for when in ("before", "after")}
    assert ("after_write", "/workspace/d/f", 5) in hooks.calls
    assert ("before_write", "/workspace/d/f", 5, 0) in hooks.calls
    assert ("after_read", "/workspace/d/f", 3) in hooks.calls
    assert ("before_open", "/workspace/d/f", os.O_RDONLY) in hooks.calls
    assert ("after_rename", "/workspace/d/f", "/workspace/d/g") in hooks.calls
    assert ("before_setattr", "/workspace/d/f", {"mode": 0o600}) in hooks.calls


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in ("close", "sync")])
def test_every_operation_can_be_denied_with_a_reason(operation: str) -> None:
    below = MemoryProvider()
    denying = type("Denying", (), {f"before_{operation}": staticmethod(deny)})()
    with pytest.raises(PermissionError, match="not today"):
        everything(HookedProvider(below, denying))


def deny(*_: object) -> None:
    raise Denied("my-rule", "not today")


def test_what_was_denied_did_not_happen() -> None:
    below = MemoryProvider()
    below.write_file("/a", "kept")
    hooks = type("Denying", (), {"before_remove": staticmethod(deny), "before_write": staticmethod(deny)})()
    provider = HookedProvider(below, hooks)
    with pytest.raises(PermissionError):
        provider.remove("/a")
    handle = provider.open("/a", os.O_RDWR)
    with pytest.raises(PermissionError):
        handle.write(memoryview(b"gone"), 0)
    handle.close()
    assert below.read_file("/a") == b"kept"


def test_file_events_have_what_changed_and_the_size_written() -> None:
    told: list[tuple[str, str, int]] = []
    provider = HookedProvider(MemoryProvider(), mount="/w", emit=lambda *event: told.append(event))
    handle = provider.create("/f", 0o644)
    handle.write(memoryview(b"x" * 1000), 0)
    handle.write(memoryview(b"x" * 1048), 1000)
    handle.close()
    provider.setattr("/f", mtime_ns=1)
    provider.setattr("/f", mode=0o600)
    provider.remove("/f")
    assert told == [("create", "/w/f", 0), ("write", "/w/f", 2048), ("setattr", "/w/f", 0), ("remove", "/w/f", 0)]


def test_only_an_object_with_file_hooks_needs_python() -> None:
    class Network:
        def on_request(self, request: object) -> None: ...

    class Files:
        def after_write(self, path: str, count: int) -> None: ...

    assert not has_hooks(None)
    assert not has_hooks(Network())
    assert has_hooks(Files())


def test_a_hooked_handle_is_closed_even_when_the_hook_objects() -> None:
    below = MemoryProvider()
    below.write_file("/a", "x")
    handle = HookedProvider(below, type("Denying", (), {"before_close": staticmethod(deny)})()).open("/a", os.O_RDONLY)
    with pytest.raises(PermissionError):
        handle.close()
    free = below.statfs().free
    below.remove("/a")
    assert below.statfs().free > free
