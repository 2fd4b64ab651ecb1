"""How a server was started."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from sandbox.errors import Denied, InvalidArgument

UPLOAD_LIMIT = 2**30
BODY_LIMIT = 10 * 2**20


class Settings(msgspec.Struct, kw_only=True):
    """`roots` are the directories of the host that a remote client may name as a sandbox's project."""

    record: str
    roots: list[str] = []
    host: str = "127.0.0.1"
    port: int = 7777
    names: list[str] = []
    unix_socket: str | None = None
    certificate: str | None = None
    key: str | None = None
    trust_proxy: str | None = None
    rate: float = 500.0
    upload_limit: int = UPLOAD_LIMIT
    most: int | None = None  # sandboxes at a time; who asks for another waits
    wait: float = 30.0  # seconds, then they get 503 and come back later
    token_file: str | None = None
    pool: int = 0  # sandboxes that are kept ready
    manager: dict[str, Any] = {}  # SandboxManagerConfig of the default managed sandbox

    def project(self, wanted: str) -> str:
        """`wanted`, if it lies in one of the roots, links followed. Raises Denied, InvalidArgument."""
        if not wanted.startswith("/"):
            raise InvalidArgument("filesystem.root must be an absolute path, not {wanted!r}", wanted=wanted)
        real = os.path.realpath(wanted)
        for root in map(os.path.realpath, self.roots):
            if real == root or real.startswith(root.rstrip("/") + "/"):
                return real
        raise Denied(
            "server-roots", "{wanted} is not within a directory that `sandbox serve --root` named", wanted=wanted
        )
