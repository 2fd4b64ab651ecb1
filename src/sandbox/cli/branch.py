"""The end of a run with --branch, and `sandbox apply` for one: brings the commits over and says how to review them."""

from __future__ import annotations

import sys

from sandbox.cli.output import shown
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from sandbox.bring_branch import Brought
    from sandbox.cli.options import Arguments
    from sandbox.registry.registry import Entry
    from sandbox.sandbox import Sandbox

REFUSED = 125


def bring_at_end(sandbox: Sandbox, arguments: Namespace | Arguments, status: int) -> int:
    """Brings the commits over after the sandbox has ended. Returns `status`, or 125 if it is 0 and they are refused."""
    try:
        _tell(_brought(sandbox, arguments), sandbox.id)
    except (SandboxError, OSError) as problem:
        print(f"sandbox: {shown(_.text(problem))}", file=sys.stderr)
        again = _("the commits stay in the overlay; bring them over with `sandbox apply {id}`").format(id=sandbox.id)
        print(f"sandbox: {again}", file=sys.stderr)
        return status or REFUSED
    return status


def bring_as_json(sandbox: Sandbox, arguments: Namespace | Arguments) -> dict[str, object]:
    """The same, for `--json`."""
    name = sandbox.config.filesystem.branch
    try:
        done = _brought(sandbox, arguments)
    except (SandboxError, OSError) as problem:
        return {"name": name, "commits": 0, "uncommitted": None, "elsewhere": None, "error": str(problem)}
    elsewhere = done.elsewhere or done.more
    return {
        "name": done.branch, "commits": done.commits, "uncommitted": done.uncommitted, "elsewhere": elsewhere,
        "error": None,
    }  # fmt: skip


def bring_later(entry: Entry, arguments: Namespace, paths: list[str]) -> int:
    """`sandbox apply` for a sandbox that worked on a branch. Raises SandboxError."""
    if paths:
        raise SandboxError(
            "commits cannot be applied in part: give no paths, or omit --branch, --commit-rest and --force"
        )
    if entry.running:
        raise SandboxError("{id} is running; stop it first: `sandbox kill {id}`", id=entry.id)
    from sandbox.bring_branch import bring

    done = bring(entry.id, entry.config, to=arguments.branch, commit_rest=arguments.commit_rest, force=arguments.force)
    _tell(done, entry.id)
    return 0


def _brought(sandbox: Sandbox, arguments: Namespace | Arguments) -> Brought:
    from sandbox.bring_branch import bring

    try:
        return bring(sandbox.id, sandbox.config.plain(), commit_rest=arguments.commit_rest, force=arguments.force)
    finally:
        if sandbox._branch_in_use is not None:
            sandbox._branch_in_use.close()


def _tell(done: Brought, identity: str) -> None:
    """Prints what is on the branch now, and what is not."""
    branch, base = shown(done.branch), shown(done.base)
    if done.commits:
        text = _("new commits on {branch}: {count}; review them with `git diff {base}...{branch}`")
        print(f"sandbox: {text.format(count=done.commits, branch=branch, base=base)}", file=sys.stderr)
    else:
        print(f"sandbox: {_('no new commits for {branch}').format(branch=branch)}", file=sys.stderr)
    if done.elsewhere:
        text = _("HEAD inside was not on {branch}: what was committed elsewhere stays in the overlay of {id}")
        print(f"sandbox: {text.format(branch=branch, id=identity)}", file=sys.stderr)
    elif done.more:
        text = _(
            "not everything that was committed inside is on {branch}: other branches, tags, stashes or submodules stay "
            "in the overlay of {id}"
        )
        print(f"sandbox: {text.format(branch=branch, id=identity)}", file=sys.stderr)
    if done.uncommitted:
        text = _(
            "files with changes that are not committed: {count}; they stay in the overlay: see `sandbox diff {id}`, "
            "then `sandbox apply --commit-rest {id}` or `sandbox discard {id}`"
        )
        print(f"sandbox: {text.format(count=done.uncommitted, id=identity)}", file=sys.stderr)
