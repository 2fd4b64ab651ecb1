"""`sandbox run --json`: one document that describes the run, whatever happened."""

from __future__ import annotations

from sandbox.cli.run_summary import Refusals, status
from sandbox.errors import SandboxClosed, SandboxError
from sandbox.service import why_closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

OUR_ERROR = 125
_RESULT = ("signal", "timed_out", "out_of_memory", "truncated", "stdout", "stderr", "note")
_USED = ("duration_ms", "user_ms", "system_ms", "max_rss_kb")


def run(
    sandbox: Sandbox, command: Sequence[str], directory: str | None = None, finish: Callable[[], object] | None = None
) -> int:
    """Runs the command, ends the sandbox and prints the document. If the command could not run, also raises the reason.

    `finish` brings a branch's commits over and returns the document's `branch` field.
    """
    refusals = Refusals(sandbox)
    result: ExecResult | None = None
    problem: SandboxError | None = None
    try:
        result = sandbox.exec(command, directory)
    except SandboxClosed as raised:
        problem = why_closed(sandbox, raised)
    except SandboxError as raised:
        problem = raised
    sandbox.close()
    changed = 0
    branch = finish() if finish is not None and result is not None else None
    if sandbox.config.filesystem.overlay and branch is None:
        changed = len(sandbox.changes())
        if not changed:
            sandbox.discard()  # nothing is left behind, as without --json
    told: dict[str, object] = {
        "id": sandbox.id,
        "overlay": sandbox.id if changed else None,
        "changed": changed,
        **({"branch": branch} if branch is not None else {}),
        "refused": refusals.plain(),
        "made": sandbox._made,
        "undone": [{"path": path, "saved": saved or None} for path, saved in sandbox._undone],
        "notices": [str(notice) for notice in sandbox.notices],
    }
    if result is None:
        assert problem is not None
        _print(problem, told)
        raise problem
    return ended(result, told)


def ended(result: ExecResult, told: dict[str, object]) -> int:
    """Prints the document of a command that ran; `told` has the fields about its sandbox. Returns the exit status."""
    said = {name: result[name] for name in _RESULT} | {name: result[name] for name in _USED}
    _dump({**told, "exit_code": status(result), **said, "error": None})
    return status(result)


def failed(problem: Exception) -> None:
    """The same document when there was no sandbox."""
    left: dict[str, object] = {"refused": {"hosts": [], "files": []}, "made": [], "undone": [], "notices": []}
    _print(problem, {"id": None, "overlay": None, "changed": 0, **left})


def _print(problem: Exception, told: dict[str, object]) -> None:
    nothing: dict[str, object] = dict.fromkeys(_USED, 0) | {
        "signal": None,
        "timed_out": False,
        "out_of_memory": False,
        "truncated": False,
        "stdout": "",
        "stderr": "",
        "note": "",
    }
    error = {"kind": type(problem).__name__, "message": str(problem)}
    _dump({**told, "exit_code": getattr(problem, "exit_code", OUR_ERROR), **nothing, "error": error})


def _dump(document: dict[str, object]) -> None:
    import json

    print(json.dumps(document, ensure_ascii=True, default=str), flush=True)
