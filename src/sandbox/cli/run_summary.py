"""The summary of a run, on stderr: what was blocked and why, changes to review, how it ended."""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import shown
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.client import Client
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

TIMED_OUT = 124  # as timeout(1)
MOST_UNDONE = 10
MOST = 3  # how many refusals to print; the record has all


class Refusals:
    """Listens to a sandbox's events and remembers which hosts were refused, each reason once.

    A refused file is "Permission denied", which users understand. A program that cannot reach a host prints
    "Temporary failure in name resolution" and tries again: without our own message nobody would know that the sandbox
    refused, or how to change that.
    """

    def __init__(self, sandbox: Sandbox | Client, expected: Sequence[str] = ()) -> None:
        """`expected`: hosts whose refusal is not reported, because the program works without them."""
        self._expected = frozenset(expected)
        self._reasons: dict[str, dict[str, object]] = {}
        self._files: dict[tuple[object, object], None] = {}
        # Later notices are printed at the end: until then the terminal belongs to the command.
        self.told = len(getattr(sandbox, "notices", ()))
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

    def tell(self, sandbox: Sandbox | Client) -> None:
        """Prints one line each, and how to list the rest."""
        told = [reason for reason, one in self._reasons.items() if _host(str(one.get("url", ""))) not in self._expected]
        for reason in told[:MOST]:
            print(_("sandbox: blocked: {reason}").format(reason=shown(_.text(reason))), file=sys.stderr)
        if len(told) > MOST:
            more = _("sandbox: blocked: {count} more; list them with `sandbox audit --blocked-only --sandbox {id}`")
            print(more.format(count=len(told) - MOST, id=sandbox.id), file=sys.stderr)


def _host(url: str) -> str:
    """The host of an event's address, which may have a scheme, a port and a path."""
    return url.rpartition("://")[2].partition("/")[0].partition(":")[0]


def to_its_end(sandbox: Sandbox, run: Callable[[], ExecResult]) -> ExecResult:
    """Returns what `run` returns, and closes the sandbox. If `run` fails, because the sandbox was ended for instance,
    prints what the tenants left behind all the same."""
    told = len(sandbox.notices)
    try:
        with sandbox:
            return run()
    except BaseException:
        tell_left(sandbox, told)
        raise


def tell(sandbox: Sandbox, result: ExecResult, refusals: Refusals) -> int:
    """Prints the summary, once the sandbox has ended. Returns the exit status."""
    tell_left(sandbox, refusals.told)
    # After a successful command, print nothing to a stderr that may be a program's input.
    if result.exit_code != 0 or os.isatty(2):
        refusals.tell(sandbox)
    if result.note:
        print(f"sandbox: {_.text(result.note)}", file=sys.stderr)
    return status(result)


def tell_left(sandbox: Sandbox, told: int) -> None:
    """Prints what the tenants left behind, and the notices since the first `told`, however the sandbox ended."""
    if sandbox.config.filesystem.overlay and sandbox.config.filesystem.branch is None:
        _tell_changes(sandbox)
    tell_notices(sandbox, told)
    tell_undone(sandbox._undone)
    tell_made(sandbox._made)


def tell_made(made: list[str]) -> None:
    """Prints which new files programs on the host act on, and which programs on PATH were changed."""
    for path in made:
        told = _("{path} was created or changed while the sandbox ran; review it before a program on the host uses it")
        print(f"sandbox: {told.format(path=shown(path))}", file=sys.stderr)


def tell_notices(sandbox: Sandbox, told: int = 0) -> None:
    """Prints what the user should know: what is hidden, which limits are weaker here. `told`: how many were printed."""
    for notice in sandbox.notices[told:]:
        print(f"sandbox: {_.text(notice)}", file=sys.stderr)


def tell_undone(undone: list[tuple[str, str]]) -> None:
    """Prints what git on the host would have run, and where it is now."""
    for path, saved in undone[:MOST_UNDONE]:
        if saved:
            told = _(
                "{path} would make git on the host run a program; it was renamed to {saved}; review "
                "it before you restore it"
            )
        else:
            told = _(
                "{path} may make git on the host run a program and could not be renamed; review it before you use git"
            )
        print(f"sandbox: {told.format(path=shown(path), saved=shown(saved))}", file=sys.stderr)
    if len(undone) > MOST_UNDONE:
        more = _("{count} more of this kind; list them with `sandbox audit`").format(count=len(undone) - MOST_UNDONE)
        print(f"sandbox: {more}", file=sys.stderr)
    if undone:
        print(f"sandbox: {_('if you used git there meanwhile, it may have run this already')}", file=sys.stderr)


def status(result: ExecResult) -> int:
    """The exit status for how the command ended."""
    return TIMED_OUT if result.timed_out else result.exit_code


def _tell_changes(sandbox: Sandbox) -> None:
    """Prints how to review the changes. Without changes, deletes the layer."""
    found = sandbox.changes()
    if not found:
        sandbox.discard()
        return
    text = _("{count} changed: see `sandbox diff {id}`, then `sandbox apply {id}` or `sandbox discard {id}`")
    print(f"sandbox: {text.format(count=len(found), id=sandbox.id)}", file=sys.stderr)
