"""What provides a directory: providers, hooks, mounts. Names are loaded when they are first used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.vfs.hooks import HookedProvider
    from sandbox.vfs.memory import MemoryProvider
    from sandbox.vfs.overlay import OverlayProvider
    from sandbox.vfs.provider import DirEntry, FileInfo, Handle, Provider, Space
    from sandbox.vfs.provider_server import ProviderServer
    from sandbox.vfs.readonly import ReadonlyProvider
    from sandbox.vfs.realfs import RealFSProvider
    from sandbox.vfs.remote_provider import RemoteProvider
    from sandbox.vfs.router import MountRouter

_HOMES = {
    **dict.fromkeys(("Provider", "Handle", "FileInfo", "DirEntry", "Space"), "provider"),
    "MemoryProvider": "memory",
    "RealFSProvider": "realfs",
    "ReadonlyProvider": "readonly",
    "OverlayProvider": "overlay",
    "MountRouter": "router",
    "HookedProvider": "hooks",
    "RemoteProvider": "remote_provider",
    "ProviderServer": "provider_server",
}

__all__ = [
    "Provider", "Handle", "FileInfo", "DirEntry", "Space", "MemoryProvider", "RealFSProvider", "ReadonlyProvider",
    "OverlayProvider", "MountRouter", "HookedProvider", "RemoteProvider", "ProviderServer",
]  # fmt: skip


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"sandbox.vfs.{home}"), name)
