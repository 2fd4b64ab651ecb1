"""Brings what an ended sandbox committed on its branch to the person's repository, at the end of a run or later.

The layer is opened once more behind walls, without network, where git packs the commits; outside,
`branches/received_commits.py` checks the pack. Killed at any point, it leaves the layer as it was and can be repeated.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

from sandbox.branches.git_inside import GitInside
from sandbox.branches.left_behind import is_elsewhere, is_in_submodules
from sandbox.branches.received_commits import Incoming
from sandbox.branches.target import Target
from sandbox.config.home import home
from sandbox.errors import SandboxError
from sandbox.sandbox import Sandbox
from sandbox.vfs.workspace import Workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MESSAGE = "Uncommitted changes of {identity}"
# The settings that decide which files git sees inside; all others keep their strict defaults.
KEPT = ("blocked_patterns", "allowed_patterns", "deny_read", "deny_write", "toolchains")


@dataclass(slots=True)
class Brought:
    """What became of a sandbox's work."""

    branch: str
    commits: int  # new on the branch
    base: str  # what to compare the branch with: `git diff base...branch`
    uncommitted: int  # files with changes that stay in the overlay
    elsewhere: bool  # HEAD inside was not on the branch: what was committed there stays in the overlay
    more: bool  # something else that was committed is not on the branch, and stays in the overlay


def target_of(identity: str) -> Target | None:
    """The branch that a sandbox works or worked on; None when it has no overlay, or no branch."""
    return Target.load(os.path.join(home(), "vms", identity, "overlay"))


def bring(
    identity: str,
    config: Mapping[str, Any],
    *,
    to: str | None = None,
    commit_rest: bool = False,
    force: bool = False,
) -> Brought:
    """Brings the commits of the ended sandbox `identity` to its branch, or to the branch `to`.

    `config` is the sandbox's own. With `commit_rest`, changes that are not committed become one commit first. With
    `force` the commits need not continue the branch. An overlay with nothing left in it is removed. Raises SandboxError
    when the commits are refused; then they stay in the overlay.
    """
    workspace = Workspace.find(home(), identity, ended=True)
    target = Target.load(workspace.directory)
    if target is None:
        raise SandboxError("{id} did not work on a branch", id=identity)
    wanted = target if to is None else _other(target, to)
    with _alone(workspace.directory), tempfile.TemporaryFile(dir=workspace.directory) as pack:
        changed = [change.path for change in workspace.changes()]
        packed = _packed(workspace, config, target, changed, commit_rest, pack)
        tip, left, on_branch = packed.tip, packed.uncommitted, packed.on_branch
        if tip is None:
            raise SandboxError(
                "the branch {name} was removed inside; see `sandbox diff {id}`", name=target.name, id=identity
            )
        empty = os.fstat(pack.fileno()).st_size == 0
        file = None if empty else f"/proc/self/fd/{pack.fileno()}"
        commits = Incoming(wanted, tip, file, force=force).accept(identity, workspace.directory)
        more = is_elsewhere(target, packed.named) or is_in_submodules(target, workspace.directory)
    if not left and on_branch and not more:
        workspace.discard()
    return Brought(wanted.name, commits, target.current() or target.start[:12], left, not on_branch, more)


@dataclass(slots=True)
class _Packed:
    """What git inside reports; the host relies only on what it can check."""

    tip: str | None  # the commit that the branch points to inside
    uncommitted: int  # files
    on_branch: bool  # whether HEAD is on it
    named: list[str]  # the commits that all refs point to


def _other(target: Target, name: str) -> Target:
    found = Target.find(target.root, name)
    if found.common != target.common:
        raise SandboxError("{root} is a different repository now", root=target.root)
    found.start = target.start if not found.existed else found.start
    return found


def _packed(
    workspace: Workspace,
    config: Mapping[str, Any],
    target: Target,
    changed: list[str],
    commit_rest: bool,
    pack: Any,
) -> _Packed:
    """Reads the state of the repository inside, and writes the pack."""
    asked = config.get("filesystem") or {}
    filesystem = {key: asked[key] for key in KEPT if key in asked}
    filesystem |= {"root": workspace.root, "overlay": True, "branch": target.name}
    walls = {key: config[key] for key in ("engine", "user") if config.get(key)}
    sandbox = Reopened({**walls, "filesystem": filesystem, "caches": []}, workspace.directory)
    try:
        git = GitInside(sandbox, target)
        on_branch = git.is_on_branch()
        rest = git.uncommitted(changed)
        if rest and commit_rest and on_branch:
            git.commit(rest, MESSAGE.format(identity=os.path.basename(os.path.dirname(workspace.directory))))
            rest = git.uncommitted(changed)
        tip = git.tip()
        named = git.named()
        if tip is not None and tip != target.start:
            git.pack(tip, pack)
    finally:
        sandbox.close()
        from sandbox.registry.remove import remove_entry

        remove_entry(os.path.join(home(), "vms", sandbox.id))
    return _Packed(tip, len(rest), on_branch, named)


class Reopened(Sandbox):
    """A sandbox on the overlay of one that has ended."""

    def __init__(self, config: Mapping[str, Any], layer: str) -> None:
        self._kept_layer = layer
        super().__init__(config, command=["git", "pack-objects"])


class _alone:
    """A lock, across processes too: two overlays on one layer would disturb each other."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "bringing")

    def __enter__(self) -> None:
        import fcntl

        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise SandboxError("these commits are being brought over by another process") from None

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
