"""The fields of an HTTP message's head or trailer."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Pair = tuple[bytes, bytes]


def fold(name: str) -> str:
    """A field's name as the most lenient programs read it: `_` and `.` are `-`."""
    return name.lower().replace("_", "-").replace(".", "-")


def strip(headers: Headers, names: Iterable[str]) -> None:
    """Removes every field with one of `names`, in any spelling."""
    folded = {fold(name) for name in names}
    if folded:
        headers.pairs = [pair for pair in headers.pairs if fold(pair[0].decode("latin-1")) not in folded]


class Headers:
    """Header fields in order. A name may occur several times; names are compared without regard to case."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self.pairs: list[Pair] = list(pairs)

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of `name`."""
        wanted = name.lower().encode("latin-1")
        for one, value in self.pairs:
            if one.lower() == wanted:
                return value.decode("latin-1")
        return default

    def get_all(self, name: str) -> list[str]:
        """Every value of `name`, in order."""
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for one, value in self.pairs if one.lower() == wanted]

    @property
    def media_type(self) -> str:
        """Content-Type without its parameters, in lower case; "" when there is none."""
        return (self.get("Content-Type") or "").partition(";")[0].strip().lower()

    def set(self, name: str, value: str) -> None:
        """Replaces all fields called `name` with a single one."""
        self.remove(name)
        self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """Adds a field. Raises ValueError for characters that could end the field and begin another."""
        if not name or any(character in name for character in "\r\n\0: ") or any(c in value for c in "\r\n\0"):
            raise ValueError(f"not a header field: {name!r}")
        self.pairs.append((name.encode("latin-1"), value.encode("latin-1")))

    def remove(self, name: str) -> None:
        """Removes every field called `name`, if there are any."""
        wanted = name.lower().encode("latin-1")
        self.pairs = [pair for pair in self.pairs if pair[0].lower() != wanted]

    def copy(self) -> Headers:
        """The same fields, changed independently."""
        return Headers(self.pairs)

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    __setitem__ = set
    __delitem__ = remove

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1") for name, _ in self.pairs))

    def __len__(self) -> int:
        return len(self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self.pairs == other.pairs

    def __repr__(self) -> str:
        return f"Headers({', '.join(self)})"  # names only: values may be credentials
