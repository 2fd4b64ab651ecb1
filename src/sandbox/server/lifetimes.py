"""How long a token without scope `host` may let a sandbox live: never longer than the owner's `limits` allow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from sandbox.config.home import home
from sandbox.errors import Denied
from sandbox.registry.registry import find

if TYPE_CHECKING:
    from sandbox.rpc import messages as m
    from sandbox.sandboxes import Sandboxes

RULE = "owners-lifetime"


def check(sandboxes: Sandboxes, id: str, asked: m.Extend) -> None:
    """Raises Denied when the sandbox would live or idle longer than its owner allows."""
    left, idle = _allowed(sandboxes, id)
    if asked.lifetime is not UNSET and left is not None and (asked.lifetime is None or asked.lifetime > left):
        raise Denied(RULE, "limits.lifetime ends this sandbox in {left:.0f} seconds", left=max(0.0, left))
    if (
        asked.idle_timeout is not UNSET
        and idle is not None
        and (asked.idle_timeout is None or asked.idle_timeout > idle)
    ):
        raise Denied(RULE, "limits.idle_timeout is {idle:g} seconds", idle=idle)


def left(sandboxes: Sandboxes, id: str) -> float | None:
    """The seconds that its owner still allows it to live; None means no limit."""
    return _allowed(sandboxes, id)[0]


def _allowed(sandboxes: Sandboxes, id: str) -> tuple[float | None, float | None]:
    """The seconds it has left to live, and the seconds it may be idle."""
    most = sandboxes.most_lifetime(id)
    entry = find(home(), id)
    lifetime, idle = most if most is not None else _own(entry.config)
    age = max(0.0, time.time() - entry.created_at)
    return (None if lifetime is None else lifetime - age), idle


def _own(config: dict[str, Any]) -> tuple[float | None, float | None]:
    """The limits that its owner started the sandbox with."""
    from sandbox.config.model import Config

    limits = Config.read({"limits": config.get("limits") or {}}).limits
    return limits.lifetime, limits.idle_timeout
