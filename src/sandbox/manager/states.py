"""The life of a managed sandbox, as one table.

Two rules about this file:

1. Every change of state follows this table. The manager asks first (`after`), under its lock; a step that the table
   does not have raises WrongState and changes nothing.
2. Nothing here starts, stops or waits for anything, so the table can be read and tested without a sandbox.

                    start            started                unhealthy
    UNINITIALIZED ────────▶ INITIALIZING ────────▶ READY ─────────────▶ DEGRADED
         │                    │  ▲                  ▲  ▲     healthy       │  ▲
         │             failed │  │ start    started │  └──────────────────┘  │ failed
         │ stop               ▼  │                  │                     ▼  │
         └──────────────▶  STOPPED ─────────▶ RECOVERING ◀───────────── recover
                              ▲     recover         │
                      stopped │                     │ stop
                           STOPPING ◀───────────────┴── (and from every state that runs)
"""

from __future__ import annotations

from sandbox.errors import SandboxError

UNINITIALIZED = "uninitialized"
INITIALIZING = "initializing"
READY = "ready"
DEGRADED = "degraded"
RECOVERING = "recovering"
STOPPING = "stopping"
STOPPED = "stopped"

STATES = (UNINITIALIZED, INITIALIZING, READY, DEGRADED, RECOVERING, STOPPING, STOPPED)

TRANSITIONS: dict[str, dict[str, str]] = {
    # Nothing was ever started: there is nothing to stop, but afterwards it counts as stopped.
    UNINITIALIZED: {"start": INITIALIZING, "stop": STOPPING},
    INITIALIZING: {"started": READY, "failed": STOPPED, "stop": STOPPING},
    READY: {"unhealthy": DEGRADED, "stop": STOPPING},
    # A degraded sandbox may recover by itself: a full disk is emptied, a busy machine calms down.
    DEGRADED: {"healthy": READY, "recover": RECOVERING, "stop": STOPPING},
    # After a failed recovery it is degraded as before; the next attempt comes later.
    RECOVERING: {"started": READY, "failed": DEGRADED, "stop": STOPPING},
    # Once a stop has begun, the only way out is STOPPED.
    STOPPING: {"stopped": STOPPED},
    STOPPED: {"start": INITIALIZING, "recover": RECOVERING},
}

# The states in which a command can be run.
USABLE = (READY, DEGRADED)


class WrongState(SandboxError):
    """The request does not fit the state; nothing has changed."""

    def __init__(self, step: str, state: str) -> None:
        super().__init__("cannot {step}: the sandbox is {state}", step=step, state=state)
        self.state = state


def after(state: str, step: str) -> str:
    """The state that follows `state` by `step`. Raises WrongState."""
    try:
        return TRANSITIONS[state][step]
    except KeyError:
        raise WrongState(step, state) from None
