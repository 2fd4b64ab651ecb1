"""What a person wants to know after a run, on stderr: what was refused and why, changes to review, how it ended."""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import shown
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

TIMED_OUT = 124  # as timeout(1)
MOST_UNDONE = 10
MOST = 3  # refusals that are told; the record has all


class Refusals:
    """Hears a sandbox's events and keeps which hosts were refused, each reason once.

    A refused file is "Permission denied", which everybody understands. A program that cannot reach a host says
    "Temporary failure in name resolution" and tries again: without a word from us nobody would know that it was the
    sandbox, or how to change that.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._reasons: dict[str, dict[str, object]] = {}
        self._files: dict[tuple[object, object], None] = {}
        sandbox.on_event(self._hear)

    def _hear(self, event: dict[str, object]) -> None:
        details = event.get("network")
        if isinstance(details, dict) and details.get("blocked") and len(self._reasons) < 1000:
            named = {name: details[name] for name in ("method", "url") if details.get(name)}
            self._reasons.setdefault(str(details["reason"]), {**named, "reason": details["reason"]})
        touched = event.get("file")
        if isinstance(touched, dict) and touched.get("blocked") and len(self._files) < 1000:
            self._files[touched["path"], touched["op"]] = None

    def plain(self) -> dict[str, list[dict[str, object]]]:
        """For programs: hosts with the reason, and blocked files that something tried to open."""
        files: list[dict[str, object]] = [{"path": path, "op": op} for path, op in self._files]
        return {"hosts": list(self._reasons.values()), "files": files}

    def tell(self, sandbox: Sandbox) -> None:
        """One line each, and where the rest is."""
        told = list(self._reasons)
        for reason in told[:MOST]:
            print(_("sandbox: blocked: {reason}").format(reason=shown(_.said(reason))), file=sys.stderr)
        if len(told) > MOST:
            more = _("sandbox: blocked: {count} more; `sandbox log --blocked-only --sandbox {id}` lists them")
            print(more.format(count=len(told) - MOST, id=sandbox.id), file=sys.stderr)


def tell(sandbox: Sandbox, result: ExecResult, refusals: Refusals) -> int:
    """Once the sandbox has ended. Returns the exit status that tells how the command did."""
    if sandbox.config.filesystem.overlay:
        _tell_changes(sandbox)
    tell_undone(sandbox._undone)
    for path in sandbox._made:
        told = _("{path} was made while the sandbox lived; look at it before a program on the host acts on it")
        print(f"sandbox: {told.format(path=shown(path))}", file=sys.stderr)
    # A command that did well is left alone where its stderr may be a program's input.
    if result.exit_code != 0 or os.isatty(2):
        refusals.tell(sandbox)
    if result.note:
        print(f"sandbox: {_.said(result.note)}", file=sys.stderr)
    return status(result)


def tell_undone(undone: list[tuple[str, str]]) -> None:
    """What git of the host would have run, each with where it is now."""
    for path, saved in undone[:MOST_UNDONE]:
        if saved:
            told = _("{path} would make git on the host run something; it is now {saved}: look at it, then put it back")
        else:
            told = _(
                "{path} may make git on the host run something, and could not be changed: look at it before git does"
            )
        print(f"sandbox: {told.format(path=shown(path), saved=shown(saved))}", file=sys.stderr)
    if len(undone) > MOST_UNDONE:
        more = _("{count} more of that kind; `sandbox log` lists them").format(count=len(undone) - MOST_UNDONE)
        print(f"sandbox: {more}", file=sys.stderr)


def status(result: ExecResult) -> int:
    """The exit status that tells how the command ended."""
    return TIMED_OUT if result.timed_out else result.exit_code


def _tell_changes(sandbox: Sandbox) -> None:
    """How to review what changed. Without changes nothing is left behind."""
    found = sandbox.changes()
    if not found:
        sandbox.discard()
        return
    text = _("{count} changed: `sandbox diff {id}` shows it, `sandbox apply {id}` or `sandbox discard {id}` ends it")
    print(f"sandbox: {text.format(count=len(found), id=sandbox.id)}", file=sys.stderr)
