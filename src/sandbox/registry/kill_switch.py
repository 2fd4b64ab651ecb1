"""The kill switch: a file in the sandbox's home. While it is there, no sandbox starts, whichever program asks.

Pulling it is ordered so that nothing slips through. The file is written first; then every sandbox that the registry
shows is ended. A sandbox enters the registry before it looks for the file, so it is seen there or it sees the file.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

from sandbox.errors import SandboxError
from sandbox.registry.registration import SWITCH
from sandbox.registry.registry import Entry, entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PATIENCE = 1.0  # seconds for each step: request to close, SIGTERM, SIGKILL
_AT_ONCE = 32


def state(home: str) -> dict[str, Any] | None:
    """Who pulled it, when and why; None when it is not pulled."""
    try:
        with open(f"{home}/{SWITCH}", encoding="utf-8", errors="replace") as file:
            told = json.loads(file.read(4096))
    except FileNotFoundError:
        return None
    except ValueError:
        told = {}  # the file counts by existing, whatever it says
    return told if isinstance(told, dict) else {}


def pull(home: str, *, by: str, reason: str = "", close_own: Callable[[], object] | None = None) -> list[str]:
    """Ends every sandbox of this user at once, and revokes the placeholders of secrets. Returns the ids.

    `close_own` ends the sandboxes of this process. Idempotent: a second call ends what still runs. Raises SandboxError
    when a sandbox could not be ended; the switch stays pulled.
    """
    told = {"at": int(time.time()), "by": by[:200], "reason": reason[:1000]}
    problem: OSError | None = None
    try:
        os.makedirs(home, 0o700, exist_ok=True)
        with open(os.open(f"{home}/{SWITCH}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(told))
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        pass
    except OSError as failed:  # a full disk must not keep anything running
        problem = failed
    unrevoked = _revoke_placeholders()
    running = [one for one in entries(home) if one.running]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        own = pool.submit(close_own) if close_own is not None else None
        list(pool.map(_end, [one for one in running if one.pid != os.getpid()]))
        if own is not None:
            own.result()
    left = [one.id for one in entries(home) if one.running and one.id in {each.id for each in running}]
    if left:
        raise SandboxError(
            "could not be ended: {ids}; no sandbox starts until the switch is released", ids=", ".join(left)
        )
    if problem is not None and not os.path.exists(f"{home}/{SWITCH}"):
        raise problem  # everything has ended, but sandboxes may start again
    if unrevoked is not None:
        raise SandboxError(
            "every sandbox has ended, but placeholders that programs kept still stand for secrets: {problem}",
            problem=unrevoked,
        ) from unrevoked
    return [one.id for one in running]


def release(home: str) -> bool:
    """Lets sandboxes start again. Returns whether it was pulled."""
    try:
        os.unlink(f"{home}/{SWITCH}")
    except FileNotFoundError:
        return False
    return True


def _end(entry: Entry) -> None:
    from sandbox.registry.remove import kill

    try:
        kill(entry, patience=PATIENCE)
    except (SandboxError, OSError):
        pass  # it has ended by itself, or `pull` reports it afterwards


def _revoke_placeholders() -> OSError | None:
    """Deletes the key they are derived with: a placeholder that a program kept no longer stands for a secret. Returns
    why that failed: everything is ended all the same."""
    from sandbox.config.home import home

    try:
        os.unlink(os.path.join(home(), "credentials", "key"))
    except FileNotFoundError:
        pass
    except OSError as problem:
        return problem
    return None
