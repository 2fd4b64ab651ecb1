"""Messages on the wire: a template and its values beside the English text, so that the other side can translate it.

    {"template": "{name} is running", "values": {"name": "vm-a1b2c3d4"}}

Text, numbers, true, false, null and lists of text are sent unchanged. A message is such an object again. Anything else
is `{"text": …, "repr": …}`: what the template can show of it.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from sandbox.errors import Message, SandboxError, message_of

_DEEPEST = 8


class ShownValue(str):
    """A value whose type the wire does not carry: its text, and what `!r` shows."""

    __slots__ = ("_repr",)
    _repr: str

    def __new__(cls, text: str, repr: str) -> ShownValue:
        shown = super().__new__(cls, text)
        shown._repr = repr
        return shown

    def __reduce__(self) -> tuple[type[ShownValue], tuple[str, str]]:  # copied and pickled with both
        return ShownValue, (str(self), self._repr)

    def __repr__(self) -> str:
        return self._repr


def pack(text: str) -> dict[str, Any]:
    """A message as `data` carries it. Values that the template does not show are not sent."""
    if not isinstance(text, Message):
        return {"template": text, "values": {}}
    named = _names(text.template) if text.values else set()
    return {
        "template": text.template,
        "values": {name: _pack(value) for name, value in text.values.items() if name in named},
    }


def unpack(packed: Mapping[str, Any], depth: int = 0) -> Message | None:
    """The message that `pack` packed; None when `packed` is not one, for instance from another version."""
    template, values = packed.get("template"), packed.get("values")
    if not isinstance(template, str) or not isinstance(values, dict) or depth > _DEEPEST:
        return None
    try:
        return Message(template, **{str(name): _unpack(value, depth + 1) for name, value in values.items()})
    except (LookupError, ValueError, TypeError, AttributeError):
        return None


def _names(template: str) -> set[str]:
    return {(name or "").split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(template)}


def _pack(value: object) -> Any:
    if isinstance(value, SandboxError):
        value = message_of(value) if type(value).text is SandboxError.text else Message(str(value))
    if isinstance(value, Message):
        return pack(value)
    if value is None or type(value) in (str, bool, int, float):
        return value
    if type(value) is list and all(type(one) is str for one in value):
        return value
    return {"text": str(value), "repr": repr(value)}


def _unpack(value: Any, depth: int) -> Any:
    if not isinstance(value, dict):
        return value
    if "template" in value:
        inner = unpack(value, depth)
        return Message(str(value["template"])) if inner is None else inner
    return ShownValue(str(value.get("text", "")), str(value.get("repr", "")))
