"""Ends a sandbox reliably: first politely, then by force."""

from __future__ import annotations

import os
import signal
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox


def end(sandbox: Sandbox, patience: float) -> bool:
    """Closes a sandbox. Returns whether force was needed, after three times `patience` at the latest.

    The guest is the first process of the sandbox's pid namespace: when it is killed, the kernel ends everything else.
    """
    closing = Thread(target=_close, args=(sandbox,), name="sandbox-ending", daemon=True)
    closing.start()
    closing.join(patience)
    if not closing.is_alive():
        return False
    pid = getattr(getattr(sandbox, "_running", None), "pid", None)
    if pid is not None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    closing.join(2 * patience)
    return True


def _close(sandbox: Sandbox) -> None:
    try:
        sandbox.close()
    except Exception as problem:  # noqa: BLE001 - the sandbox is given up in any case
        import sys

        print(f"sandbox: {sandbox.id} did not end cleanly: {problem!r}", file=sys.stderr)
