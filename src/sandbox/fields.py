"""The base of the small objects that a sandbox returns: results, and information about itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Fields:
    """An object whose fields can be read as attributes and by name."""

    __slots__ = ()
    fields: tuple[str, ...] = ()

    def keys(self) -> tuple[str, ...]:
        """The names of the fields; with them `dict(info)` works."""
        return self.fields

    def __getitem__(self, name: str) -> Any:
        if name not in self.fields:
            raise KeyError(name)
        return getattr(self, name)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(self[name] == getattr(other, name) for name in self.fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self[name]!r}' for name in self.fields)})"
