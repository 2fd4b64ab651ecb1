"""`sandbox list`: lists this user's sandboxes."""

from __future__ import annotations

from sandbox.cli.output import shown
from sandbox.config.home import home
from sandbox.i18n import _
from sandbox.registry.registry import entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from sandbox.registry.registry import Entry

_WIDTHS = (13, 10, 11, 16, 8)
_HEADINGS = ("ID", "STATUS", "IMAGE", "CREATED", "PID", "COMMAND")
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--running", action="store_true", help=_("list only running sandboxes"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    found = [entry for entry in entries(home()) if entry.running or not arguments.running]
    if arguments.json:
        import json

        print(json.dumps([entry.plain() for entry in found], indent=2))
        return 0
    return _table(found)


def run_plain() -> int:
    """`sandbox list` without options."""
    return _table(entries(home()))


def _table(found: list[Entry]) -> int:
    import time

    now = time.time()
    published = {entry.id: ", ".join(map(_port, ports)) for entry in found if (ports := entry.ports)}
    widths = (*_WIDTHS, max(map(len, published.values())) + 2) if published else _WIDTHS
    lines = [_cells(entry, now, published) for entry in found]
    print("\n".join(_row(widths, cells) for cells in (_headings(bool(published)), *lines)))
    return 0


def _headings(published: bool) -> tuple[str, ...]:
    return (*_HEADINGS[:-1], "PORTS", _HEADINGS[-1]) if published else _HEADINGS


def _port(port: dict[str, Any]) -> str:
    """An address of the host and the port inside that it leads to."""
    address = f"[{port['address']}]" if ":" in port["address"] else port["address"]
    return f"{address}:{port['port']}->{port['inside']}"


def _cells(entry: Entry, now: float, published: dict[str, str]) -> tuple[str, ...]:
    words = shown(" ".join(map(_quoted, entry.command))) or "-"
    ports = (published.get(entry.id, "-"),) if published else ()
    return (
        entry.id,
        entry.status,
        shown(entry.image or "-"),
        ago(now - entry.created_at),
        str(entry.pid or "-"),
        *ports,
        words if len(words) <= 60 else f"{words[:59]}…",
    )


def _row(widths: tuple[int, ...], cells: tuple[str, ...]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=False))
    return "".join(padded) + cells[-1]


def _quoted(word: str) -> str:
    """The command as typed, on one line: line ends in a script become `; `."""
    lines = [line.strip() for line in word.strip().split("\n")]
    one = "; ".join(line for line in lines if line)
    if one and all(char.isalnum() or char in "-_./=:,@%+" for char in one):
        return one
    return "'" + one.replace("'", "'\\''") + "'"


def ago(seconds: float) -> str:
    """For people: "5 minutes ago"."""
    for size, name in _UNITS:
        count = int(seconds // size)
        if count >= 1:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
