"""Output of commands: tables, JSON, and text from inside that must not control the terminal."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def shown(text: object, keep: str = "") -> str:
    """Text that is safe to print: control characters are escaped, except those in `keep`."""
    whole = str(text)
    if whole.isprintable():
        return whole
    return "".join(
        sign if sign.isprintable() or sign in keep else sign.encode("unicode_escape", "surrogatepass").decode()
        for sign in whole
    )


def width(text: str) -> int:
    """How many columns it takes on a terminal: two for each wide character."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def table(rows: Iterable[Sequence[object]], heads: Sequence[str] = ()) -> str:
    """Columns side by side, two spaces apart; the last one has any width."""
    cells = [list(heads)] if heads else []
    cells += [[shown(cell) for cell in row] for row in rows]
    if not cells:
        return ""
    widths = [max(width(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = (
        "  ".join(cell + " " * (widths[at] - width(cell)) for at, cell in enumerate(row)).rstrip() for row in cells
    )
    return "\n".join(lines)


def print_json(value: object) -> None:
    """One JSON document, ASCII only."""
    import json

    print(json.dumps(value, indent=2, default=str))
