"""A project's way to the node and back: sends what the node lacks, and brings back what was changed there."""

from __future__ import annotations

import http.client
import os
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.cluster.line import Line
from sandbox.cluster.manifest import ManifestEntry, around, look
from sandbox.errors import SandboxError, SandboxLost
from sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from sandbox.client import Client
    from sandbox.vfs.changes import Change

LARGEST = 2**28  # bytes of one file


class Sent:
    """Which files of a project were sent, and where they are now."""

    def __init__(self, project: str, root: str, entries: Sequence[ManifestEntry]) -> None:
        self.project = project
        self.root = root
        self.entries = {one.path: one for one in entries}


def send(project: str, url: str, context: ssl.SSLContext, token: str, hiding: Mapping[str, Any]) -> Sent:
    """Sends a project to an agent; `hiding` are settings about what is hidden in it.

    Raises what `Sandbox` raises, and SandboxLost.
    """
    project = os.path.abspath(os.path.expanduser(project))
    line = Line(url, context, token)
    try:
        with around(project, hiding) as sandbox:
            entries = look(sandbox)
            wanted = {one.digest: one.path for one in entries if one.kind == "file"}
            lacking = line.ask_json("POST", "/v1/cluster/missing", {"digests": list(wanted)})["digests"]
            for digest in lacking:
                content = sandbox.read_file(wanted[digest], max_bytes=LARGEST)
                line.ask("PUT", f"/v1/cluster/blobs/{digest}", content)
        told = line.ask_json("POST", "/v1/cluster/projects", {"entries": [msgspec.to_builtins(one) for one in entries]})
        return Sent(project, told["root"], entries)
    except (OSError, http.client.HTTPException) as problem:
        if isinstance(problem, FileNotFoundError):
            raise
        raise SandboxLost("the node ended the connection: {problem}", problem=problem) from problem
    finally:
        line.close()


def bring_back(remote: Client, sent: Sent) -> Sandbox:
    """A sandbox around the project here, with the changes of the one on the node in its overlay, to review and apply.

    Raises SandboxError for a path that was also changed here since it was sent; then nothing is kept.
    """
    changes = remote.changes()
    made = Sandbox({"filesystem": {"root": sent.project, "overlay": True}})
    try:
        here = {one.path: one for one in look(made)}
        for change in sorted(changes, key=lambda one: one.path.split("/")):
            before, now = sent.entries.get(change.path), here.get(change.path)
            if (before and (before.digest, before.target)) != (now and (now.digest, now.target)):
                raise SandboxError("{path!r} was changed here, too, since it was sent", path=change.path)
            _carry(remote, made, change)
    except BaseException:
        made.discard()
        raise
    return made


def _carry(remote: Client, made: Sandbox, change: Change) -> None:
    """Makes one change in the overlay, with a tenant's rights: what a tenant may not write is not written."""
    state, path = change.after, change.path
    if change.before is not None and (state is None or state.kind != change.before.kind):
        made.remove(path, recursive=True)
    if state is None:
        return
    if state.kind == "directory":
        made.mkdir(path, state.mode & 0o777)
    elif state.kind == "link":
        if change.before is not None and change.before.kind == "link":
            made.remove(path)
        made.symlink(state.target or "", path)
    elif state.kind == "file":
        if change.kind != "mode":
            made.write_file(path, remote.read_file(path, max_bytes=LARGEST))
        made.chmod(path, state.mode & 0o777)
