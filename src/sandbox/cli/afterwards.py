"""What a person wants to know after a run, on stderr: what was refused and why, changes to review, how it ended."""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import shown
from sandbox.words import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

TIMED_OUT = 124  # as timeout(1)
MOST = 3  # refusals that are told; the record has all


class Refusals:
    """Hears a sandbox's events and keeps what was refused, each reason once.

    A program that cannot reach a host says "Temporary failure in name resolution" and tries again: without a word
    from us nobody would know that it was the sandbox, or how to change that.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._reasons: dict[str, str] = {}  # each with the kind of event it came by
        sandbox.on_event(self._hear)

    def _hear(self, event: dict[str, object]) -> None:
        kind = str(event["type"])
        details = event.get(kind)
        if isinstance(details, dict) and details.get("blocked") and len(self._reasons) < 1000:
            self._reasons[str(details.get("reason") or f"{details.get('op')} {details.get('path')}")] = kind

    def tell(self, sandbox: Sandbox, failed: bool) -> None:
        """One line each, and where the rest is. A command that did well found its way without the file."""
        told = [reason for reason, kind in self._reasons.items() if failed or kind == "network"]
        for reason in told[:MOST]:
            print(_("sandbox: blocked: {reason}").format(reason=shown(_.said(reason))), file=sys.stderr)
        if len(told) > MOST:
            more = _("sandbox: blocked: {count} more; `sandbox log --blocked-only --sandbox {id}` lists them")
            print(more.format(count=len(told) - MOST, id=sandbox.id), file=sys.stderr)


def tell(sandbox: Sandbox, result: ExecResult, refusals: Refusals) -> int:
    """Once the sandbox has ended. Returns the exit status that tells how the command did."""
    if sandbox.config.filesystem.overlay:
        _tell_changes(sandbox)
    for path in sandbox.made:
        told = _("{path} was made while the sandbox lived; look at it before a program on the host acts on it")
        print(f"sandbox: {told.format(path=shown(path))}", file=sys.stderr)
    # A command that did well is left alone where its stderr may be a program's input.
    if result.exit_code != 0 or os.isatty(2):
        refusals.tell(sandbox, failed=result.exit_code != 0)
    if result.note:
        print(f"sandbox: {_.said(result.note)}", file=sys.stderr)
    return status(result)


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
