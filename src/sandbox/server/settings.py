"""How a server was started."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from sandbox.errors import Denied, InvalidArgument

UPLOAD_LIMIT = 2**30
BODY_LIMIT = 10 * 2**20


class Settings(msgspec.Struct, kw_only=True):
    """`roots` are the host directories that a remote client may use as a sandbox's project."""

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
    most: int | None = None  # sandboxes at a time; a request for one more waits …
    wait: float = 30.0  # … this many seconds, and is then answered with 429
    token_file: str | None = None
    pool: int = 0  # how many sandboxes are kept ready
    cluster: Any = None  # a function that describes a cluster, for /v1/nodes
    manager: dict[str, Any] = {}  # SandboxManagerConfig of the default managed sandbox

    def project(self, wanted: str) -> str:
        """`wanted` with links resolved, if it is within one of the roots. Raises Denied, InvalidArgument."""
        if not wanted.startswith("/"):
            raise InvalidArgument("filesystem.root must be an absolute path, not {wanted!r}", wanted=wanted)
        real = os.path.realpath(wanted)
        for root in map(os.path.realpath, self.roots):
            if real == root or real.startswith(root.rstrip("/") + "/"):
                return real
        raise Denied(
            "server-roots", "{wanted} is not within a directory that `sandbox serve --root` named", wanted=wanted
        )
