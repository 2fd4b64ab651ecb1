"""What can go wrong, as one tree.

    SandboxError
     ├── ConfigError            an invalid configuration: a key, a value, a pattern
     ├── Denied                 a policy refused; carries the rule and the reason
     ├── EngineUnavailable      this machine cannot run the engine; says why and what would help
     ├── WallError              a required wall could not be built; nothing ran
     ├── LimitUnavailable       this machine cannot enforce a required limit
     ├── InvalidArgument        an invalid argument of a call; a ValueError, too
     ├── CommandError           the command never started, or it failed and `check=True` was given
     ├── SandboxClosed          the sandbox has ended, or ended during the call
     │    └── SandboxLost       the machine that it was on, or its agent there, is gone
     ├── ImageError             an image is not available, or not what it claims to be; nothing of it was kept
     ├── NotFound               there is no such sandbox, agent or file
     └── GuestError             the guest broke the protocol: a bug or an attack

Operating-system errors about a *tenant's* file (no such file, permission denied) are Python's own
`OSError`s, so that `except FileNotFoundError` works as everywhere else.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.result import ExecResult


class Message(str):
    """English text made from `template` and `values` as by `str.format`, and translatable because it keeps both.

    Without values the template is the text, braces and all. See `i18n`.
    """

    __slots__ = ("template", "values")
    template: str
    values: Mapping[str, object]

    def __new__(cls, template: str, /, **values: object) -> Message:
        message = super().__new__(cls, template.format(**values) if values else template)
        message.template = template
        message.values = values
        return message

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, object]]:  # so that a copy or pickle keeps both
        return (self.template,), dict(self.values)


def message_of(problem: BaseException) -> str:
    """The text of any exception: the Message that it was raised with, if it was raised with one."""
    first = problem.args[0] if problem.args else None
    return first if isinstance(first, Message) else str(problem)


class SandboxError(Exception):
    """The base of all errors here. The message says what was wrong and what to do about it.

        raise SandboxError("{name} is running; `sandbox kill {name}` first", name=entry.id)

    `str(error)` is English; `i18n._.text(error)` is in the user's language.
    """

    def __init__(self, message: str = "", /, **values: object) -> None:
        super().__init__(Message(message, **values) if values else message)

    def text(self, translate: Callable[[str], str] = str) -> str:
        """The whole message, with its sentence passed through `translate`."""
        return translate(self.args[0])

    def __str__(self) -> str:
        return self.text()


class ConfigError(SandboxError):
    """A configuration that cannot be used. Never half-applied."""

    def __init__(
        self, message: str, /, *, path: str = "", file: str | None = None, line: int | None = None, **values: object
    ) -> None:
        super().__init__(message, **values)
        self.problem: str = self.args[0]
        self.path = path
        self.at = path  # the exact place, where that is narrower than what the message names
        self.file = file
        self.line = line

    def text(self, translate: Callable[[str], str] = str) -> str:
        """The whole message: file and line, setting, and the sentence passed through `translate`."""
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return ": ".join(part for part in (where, self.path, translate(self.problem)) if part)


class Denied(SandboxError):
    """A policy refused. `rule` names what decided, `reason` says why."""

    def __init__(self, rule: str, reason: str, /, **values: object) -> None:
        super().__init__(reason, **values)
        self.rule = rule
        self.reason: str = self.args[0]
        self.args = (rule, self.reason)

    def text(self, translate: Callable[[str], str] = str) -> str:
        """The reason, passed through `translate`, and the rule."""
        return f"{translate(self.reason)} (rule: {self.rule})"


class EngineUnavailable(SandboxError):
    """The chosen engine does not work on this machine."""


class WallError(SandboxError):
    """A wall could not be built. The sandbox was not started: it is never started weaker."""


class LimitUnavailable(SandboxError):
    """This machine cannot enforce a configured limit."""


class InvalidArgument(SandboxError, ValueError):
    """An argument of a call is invalid: a timeout that is not a number, a variable without a value."""


class CommandError(SandboxError):
    """The command never ran, or failed under `check=True`.

    `exit_code` is the one a shell would give; 126 or 127 when it never ran. `result` says how it ended, with both
    outputs; it is None when it never ran. `argument` is what was wrong with the call: `command` or `cwd`.
    """

    argument = "command"

    def __init__(
        self, message: str, /, *, exit_code: int = 127, result: ExecResult | None = None, **values: object
    ) -> None:
        super().__init__(message, **values)
        self.exit_code = exit_code
        self.result = result

    @property
    def stdout(self) -> str:
        """What it printed until then."""
        return "" if self.result is None else self.result.stdout

    @property
    def stderr(self) -> str:
        """What it wrote to standard error until then."""
        return "" if self.result is None else self.result.stderr


class SandboxClosed(SandboxError):
    """The sandbox has ended."""


class SandboxLost(SandboxClosed):
    """The cluster's machine that the sandbox was on, or its agent there, is gone."""


class NotFound(SandboxError):
    """There is no sandbox, agent or file of that name."""


class ImageError(SandboxError):
    """An image cannot be fetched, read or unpacked. Nothing of it is left."""


class GuestError(SandboxError):
    """The guest sent something that the protocol does not allow."""
