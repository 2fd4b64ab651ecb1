"""Carries the changes of an ended sandbox over into its replacement.

If the workspace is the host's own directory, there is nothing to do: the changes were written there. With an overlay,
they belong to the old sandbox, so they are made again in the new one, through its own guest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sandbox.config.home import home
from sandbox.errors import NotFound

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox
    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Workspace

_PIECE = 2**20


def restore(old: str, sandbox: Sandbox) -> tuple[int, list[str]]:
    """Makes the changes of the ended sandbox `old` again. Returns how many were made, and the paths that failed."""
    from sandbox.vfs.workspace import Workspace

    try:
        workspace = Workspace.find(home(), old, ended=True)
    except NotFound:
        return 0, []
    made, failed = 0, []
    changes = workspace.changes()
    # Deletions first, deepest first, to make room; then directories before what is in them.
    deleted = sorted((one for one in changes if one.after is None), key=lambda one: -one.path.count("/"))
    for change in [*deleted, *(one for one in changes if one.after is not None)]:
        try:
            _again(workspace, change, sandbox)
            made += 1
        except OSError:
            failed.append(change.path)
    return made, failed


def _again(workspace: Workspace, change: Change, sandbox: Sandbox) -> None:
    path = os.path.join(sandbox.directory, change.path)
    now = change.after
    if now is None:
        try:
            sandbox.remove(path, recursive=True)
        except FileNotFoundError:
            pass
    elif now.kind == "directory":
        sandbox.mkdir(path, now.mode & 0o777)
    elif now.kind == "link":
        try:
            sandbox.remove(path)
        except FileNotFoundError:
            pass
        sandbox.symlink(now.target or "", path)
    elif change.kind == "mode":
        sandbox.chmod(path, now.mode & 0o777)
    elif now.kind == "file":
        with workspace.open(change) as (_, theirs):
            if theirs is None:
                raise FileNotFoundError(path)
            sandbox._write_pieces(path, _pieces(theirs), now.mode & 0o777)
        sandbox.chmod(path, now.mode & 0o777)
    else:
        raise OSError(f"{change.path} is no file, directory or link")


def _pieces(descriptor: int) -> Iterator[memoryview]:
    while piece := os.read(descriptor, _PIECE):
        yield memoryview(piece)
