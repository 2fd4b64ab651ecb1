"""Which files of a project may be sent: exactly those that a program in a sandbox around it could read.

A sandbox around the project decides, on the person's own machine, and no list of rules: what guards hide cannot be read
in it, so it gets no digest, and a file without one is not sent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.errors import SandboxError
from sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The type, the permission bits, the target of a link, and the name, for everything that `find` can see.
FIND = r"find . -mindepth 1 \( -type d -printf 'd %m\0\0%P\0' \) -o \( -type l -printf 'l 0\0%l\0%P\0' \)"
FIND += r" -o \( -type f -readable -printf 'f %m\0\0%P\0' \) 2>/dev/null"
# -readable only asks access(2); the digest needs the file itself, and a file that cannot be read gets none.
DIGESTS = "find . -mindepth 1 -type f -readable -print0 2>/dev/null | xargs -0 -r sha256sum -z -b 2>/dev/null; true"
MOST = 2**30  # bytes of either list
KINDS = {"d": "directory", "f": "file", "l": "symlink"}


class ManifestEntry(msgspec.Struct, frozen=True):
    """One path of a project. `digest` is of a file's content, `target` a link's."""

    path: str
    kind: str
    mode: int = 0
    digest: str = ""
    target: str = ""


def look(sandbox: Sandbox) -> list[ManifestEntry]:
    """The project of a sandbox as programs in it see it, directories before what is in them. Raises SandboxError."""
    digests = dict(_digests(_said(sandbox, DIGESTS)))
    found = []
    for kind, mode, target, path in _listed(_said(sandbox, FIND)):
        if kind == "f" and path not in digests:
            continue
        found.append(ManifestEntry(path, KINDS[kind], mode, digests.get(path, "") if kind == "f" else "", target))
    return sorted(found, key=lambda one: one.path.split("/"))


def around(project: str, hiding: Mapping[str, Any]) -> Sandbox:
    """A sandbox that sees the project and cannot change it; `hiding` are further settings of `filesystem`.

    Raises what `Sandbox` raises.
    """
    from sandbox.service import configuration

    resolved = configuration({"filesystem": {**hiding, "root": project}}, project=project).config
    resolved.filesystem.read_only, resolved.filesystem.overlay, resolved.filesystem.branch = True, False, None
    return Sandbox(resolved)


def _said(sandbox: Sandbox, command: str) -> bytes:
    result = sandbox.exec(command, env={"LC_ALL": "C"}, max_output=MOST)
    if result.truncated or result.exit_code not in (0, 1):
        raise SandboxError("the project cannot be listed: {problem}", problem=result.stderr[-200:] or result.exit_code)
    return result.stdout_bytes


def _listed(said: bytes) -> Iterator[tuple[str, int, str, str]]:
    words = [os.fsdecode(one) for one in said.split(b"\0")]
    for head, target, path in zip(words[0::3], words[1::3], words[2::3], strict=False):
        kind, _, mode = head.partition(" ")
        yield kind, int(mode, 8), target, path


def _digests(said: bytes) -> Iterator[tuple[str, str]]:
    for line in said.split(b"\0"):
        digest, _, name = line.partition(b" *./")
        if name:
            yield os.fsdecode(name), digest.decode("ascii").lstrip("\\")
