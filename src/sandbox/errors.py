"""What can go wrong, as one tree.

    SandboxError
     ├── ConfigError            what was asked makes no sense: a key, a value, a pattern
     ├── Denied                 a policy said no; carries the rule and the reason
     ├── EngineUnavailable      this machine cannot build such walls; says why and what would help
     ├── WallError              a wall was asked for and could not be built; nothing ran
     ├── LimitUnavailable       a limit was asked for that this machine cannot hold
     ├── InvalidArgument        an argument of a call makes no sense; a ValueError, too
     ├── CommandError           the command never started, or it failed and `check=True` was asked for
     ├── SandboxClosed          the sandbox has ended, or ended while we waited
     ├── NotFound               no sandbox, agent or file of ours by that name
     └── GuestError             the guest broke the protocol: a bug, or somebody's attack

Operating-system errors about a *tenant's* file (no such file, permission denied) are Python's own
`OSError`s, so that `except FileNotFoundError` works as everywhere else.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.result import ExecResult


class SandboxError(Exception):
    """Base of all our errors. The message says what was asked, what stood in the way and what to do."""


class ConfigError(SandboxError):
    """A configuration that cannot be used. Never half-applied."""

    def __init__(self, message: str, *, path: str = "", file: str | None = None, line: int | None = None) -> None:
        self.problem = message
        self.path = path
        self.at = path  # the very place, where that is narrower than what the message names
        self.file = file
        self.line = line
        where = ":".join(str(part) for part in (file, line) if part is not None)
        super().__init__(": ".join(part for part in (where, path, message) if part))


class Denied(SandboxError):
    """A policy refused. `rule` names what decided, `reason` says it in words."""

    def __init__(self, rule: str, reason: str) -> None:
        self.rule = rule
        self.reason = reason
        super().__init__(f"{reason} (rule: {rule})")


class EngineUnavailable(SandboxError):
    """The chosen engine cannot work on this machine."""


class WallError(SandboxError):
    """A wall could not be built. The sandbox was not started: it is never started weaker."""


class LimitUnavailable(SandboxError):
    """A limit that was asked for cannot be held on this machine."""


class InvalidArgument(SandboxError, ValueError):
    """An argument of a call makes no sense: a timeout that is no number, a variable without a value."""


class CommandError(SandboxError):
    """The command never ran, or failed under `check=True`.

    `exit_code` is what a shell would say; 126 or 127 when it never ran. `result` is how it ended, with both outputs,
    and None when it never ran.
    """

    def __init__(self, message: str, *, exit_code: int = 127, result: ExecResult | None = None) -> None:
        self.exit_code = exit_code
        self.result = result
        super().__init__(message)

    @property
    def stdout(self) -> str:
        """What it printed until then."""
        return "" if self.result is None else self.result.stdout

    @property
    def stderr(self) -> str:
        """What it complained about until then."""
        return "" if self.result is None else self.result.stderr


class SandboxClosed(SandboxError):
    """The sandbox is no longer there."""


class NotFound(SandboxError):
    """Nothing of ours goes by that name."""


class GuestError(SandboxError):
    """What came from inside the walls was not what the protocol allows."""
