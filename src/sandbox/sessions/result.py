"""The result of a piece of code: its output, values to show, and how it failed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from sandbox.errors import CommandError, Message
from sandbox.fields import Fields

TOLD_MOST = 10_000  # characters of an error's value in an exception's message


class RichOutput(Fields):
    """One value to show, in every form that it has: `data["text/html"]`, and `text`, `html`, `png` for short."""

    __slots__ = ("data", "is_result")
    fields = (*__slots__, "text", "html", "png")

    def __init__(self, data: Mapping[str, Any], is_result: bool) -> None:
        self.data = dict(data)  # by media type; binary data is base64 text, as in notebooks
        self.is_result = is_result  # the value of the last line, not one that `display` was called with

    @property
    def text(self) -> str:
        """As plain text."""
        return str(self.data.get("text/plain", ""))

    @property
    def html(self) -> str | None:
        """As HTML, if it has that form. It comes from untrusted code: never put it into a page as it is."""
        found = self.data.get("text/html")
        return found if isinstance(found, str) else None

    @property
    def png(self) -> bytes | None:
        """As a PNG picture, if it has that form."""
        found = self.data.get("image/png")
        if not isinstance(found, str):
            return None
        try:
            return base64.b64decode(found)
        except (binascii.Error, ValueError):
            return None

    def __repr__(self) -> str:
        return f"RichOutput({', '.join(self.data)}: {self.text[:80]!r})"


class CodeFailure(Fields):
    """The exception that ended a piece of code: its `name`, its `value`, and the whole `traceback` as text."""

    __slots__ = fields = ("name", "value", "traceback")

    def __init__(self, name: str, value: str, traceback: str) -> None:
        self.name, self.value, self.traceback = name, value, traceback

    def __repr__(self) -> str:
        return f"CodeFailure({self.name}: {self.value[:200]})"


class CodeResult(Fields):
    """How a piece of code ended. `result.stdout` and `result["stdout"]` are the same."""

    __slots__ = ("stdout", "stderr", "outputs", "error", "timed_out", "truncated")
    fields = (*__slots__, "ok", "text")

    def __init__(
        self,
        *,
        stdout: str = "",
        stderr: str = "",
        outputs: list[RichOutput] | None = None,
        error: CodeFailure | None = None,
        timed_out: bool = False,
        truncated: bool = False,
    ) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.outputs = outputs or []
        self.error = error
        self.timed_out = timed_out
        self.truncated = truncated  # some output was over the limit and cut

    @property
    def ok(self) -> bool:
        """Whether it ended without an error, in time."""
        return self.error is None and not self.timed_out

    @property
    def text(self) -> str | None:
        """The value of the last line, as plain text; None when it has none."""
        return next((one.text for one in reversed(self.outputs) if one.is_result), None)

    def check(self) -> None:
        """Raises CommandError, with the traceback, unless the code ended well."""
        if self.timed_out:
            raise CommandError("the code did not end in time", exit_code=124)
        if self.error is not None:
            name, value = self.error.name, self.error.value[:TOLD_MOST]
            raise CommandError(Message("the code failed: {name}: {value}", name=name, value=value), exit_code=1)

    def __repr__(self) -> str:
        how = "timed out" if self.timed_out else repr(self.error) if self.error is not None else "ok"
        return f"CodeResult({how}, text={self.text!r}, stdout={self.stdout!r}, stderr={self.stderr!r})"
