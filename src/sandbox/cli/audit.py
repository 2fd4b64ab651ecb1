"""`sandbox audit`: shows the record. `sandbox audit verify`: checks that nobody changed it."""

from __future__ import annotations

import os
import sys
import time

from sandbox.audit import reading
from sandbox.audit.entry import SEVERITIES, TYPES, timestamp
from sandbox.audit.record import CURRENT
from sandbox.cli.output import shown, table
from sandbox.config.home import home
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator
    from typing import Any

_POLL = 0.2  # seconds between checks of the file with --follow


def add(parser: ArgumentParser) -> None:
    option = parser.add_argument
    option("action", nargs="?", choices=["verify"], help=_("verify that no entry was altered, removed or moved"))
    option("--blocked-only", action="store_true", help=_("show only what was blocked"))
    option("--follow", "-f", action="store_true", help=_("keep printing new entries"))
    option("--type", choices=TYPES, metavar="TYPE", help=_("show only this type of event"))
    option("--severity", choices=SEVERITIES, metavar="LEVEL", help=_("show only this severity or higher"))
    option(
        "--since",
        metavar="TIME",
        help=_("show entries since a time (2026-01-28T10:30) or for a duration (30m, 2h, 1d)"),
    )
    option("--sandbox", metavar="ID", help=_("show only this sandbox"))
    option("--agent", metavar="NAME", help=_("show only this agent"))
    option("--lines", "-n", metavar="N", type=int, help=_("show only the last N entries"))
    option("--text", metavar="WORDS", help=_("show only entries with this text in any field"))
    option("--cluster", action="store_true", help=_("the records of all nodes of the Ray cluster"))
    option("--json", action="store_true", help=_("print one JSON object per line"))
    option(
        "--format",
        choices=["table", "json", "otlp"],
        help=_("a table, JSON lines, or OpenTelemetry logs (OTLP/JSON lines)"),
    )


def run(arguments: Namespace) -> int:
    if arguments.cluster:
        from sandbox.cli import audit_cluster

        since = _since(arguments.since)
        style = "json" if arguments.json else arguments.format or "table"
        return audit_cluster.run(
            arguments, lambda one: fits(one, arguments, since), lambda entries: _print(entries, style)
        )
    directory = _directory()
    if arguments.action == "verify":
        return _verify(directory, arguments.json)
    since = _since(arguments.since)
    everything = list(reading.entries(directory))
    entries = [one for one in everything if fits(one, arguments, since)]
    if arguments.lines is not None:
        entries = entries[max(0, len(entries) - arguments.lines) :]
    style = "json" if arguments.json else arguments.format or "table"
    _print(entries, style)
    if arguments.follow:
        sys.stdout.flush()
        try:
            for one in follow(directory, everything[-1].get("seq", 0) if everything else 0):
                if fits(one, arguments, since):
                    _print([one], style)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            return 0
    return 0


def _directory() -> str:
    from sandbox.config.layers import resolve

    directory = resolve({}, project=".").config.audit.directory
    return os.path.expanduser(directory) if directory else os.path.join(home(), "audit")


def _verify(directory: str, as_json: bool) -> int:
    verdict = reading.verify(directory)
    if as_json:
        from sandbox.cli.output import print_json

        print_json({name: getattr(verdict, name) for name in ("count", "problem", "file", "line")})
    elif verdict:
        print(_("{count} entries; none altered, removed or moved").format(count=verdict.count))
    else:
        where = f"{verdict.file}:{verdict.line}" if verdict.line else verdict.file
        print(f"{where}: {_.text(verdict.problem)}")
        print(_("the {count} entries before it are intact").format(count=verdict.count))
    return 0 if verdict else 1


def fits(entry: dict[str, Any], arguments: Namespace, since: str | None) -> bool:
    """Whether the entry matches the options."""
    severity = entry.get("severity")
    return (
        (not arguments.blocked_only or entry.get("result") == "blocked")
        and (arguments.type is None or entry.get("type") == arguments.type)
        and (
            arguments.severity is None
            or (severity in SEVERITIES and SEVERITIES.index(severity) >= SEVERITIES.index(arguments.severity))
        )
        and (arguments.sandbox is None or str(entry.get("sandbox", "")).startswith(arguments.sandbox))
        and (arguments.text is None or has_text(entry, arguments.text.lower()))
        and (arguments.agent is None or entry.get("agent") == arguments.agent)
        and (since is None or str(entry.get("timestamp", "")) >= since)
    )


def has_text(entry: dict[str, Any], words: str) -> bool:
    """Whether any field contains `words`, which must be in lower case."""
    return any(words in str(value).lower() for value in entry.values())


def _since(text: str | None) -> str | None:
    """A time as the record writes it; timestamps then compare as text. Raises SandboxError."""
    if text is None:
        return None
    from datetime import datetime

    from sandbox.config.units import seconds

    try:
        return timestamp(time.time() - seconds(text))
    except ValueError:
        pass
    try:
        return timestamp(datetime.fromisoformat(text).timestamp())
    except ValueError:
        raise SandboxError("--since {text!r} is neither a time nor a duration such as 30m", text=text) from None


def follow(directory: str, after: int) -> Iterator[dict[str, Any]]:
    """New entries after number `after`: none twice, none lost, even when the file is rotated."""
    while True:
        # From the beginning; opened again only when the file was rotated.
        for entry in reading.entries(directory):
            if entry.get("seq", 0) > after:
                after = entry["seq"]
                yield entry
        for entry in _appended(os.path.join(directory, CURRENT), after):
            after = entry["seq"]
            yield entry


def _appended(name: str, after: int) -> Iterator[dict[str, Any]]:
    """What is written to the current file, until it is rotated."""
    while not os.path.exists(name):
        time.sleep(_POLL)
    with open(name, encoding="ascii", errors="backslashreplace") as file:
        partial = ""
        while True:
            partial += file.readline()
            if partial.endswith("\n"):
                entry, partial = reading.parsed(partial), ""
                if entry is not None and entry.get("seq", 0) > after:
                    yield entry
            elif not os.path.exists(name) or os.stat(name).st_ino != os.fstat(file.fileno()).st_ino:
                return
            else:
                time.sleep(_POLL)


def _print(entries: list[dict[str, Any]], style: str) -> None:
    if style == "otlp":
        from sandbox.audit import otlp

        for line in otlp.lines(entries):
            print(line)
        return
    if style == "json":
        import json

        for entry in entries:
            print(json.dumps(entry))
        return
    rows = [
        (
            str(entry.get("timestamp", ""))[:19].replace("T", " "),
            entry.get("severity", ""),
            entry.get("sandbox") or "-",
            entry.get("agent") or "-",
            entry.get("result") or "-",
            _what(entry),
        )
        for entry in entries
    ]
    if rows:
        print(table(rows))


def _what(entry: dict[str, Any]) -> str:
    operation, target = entry.get("operation"), entry.get("target")
    what = f"{operation} {target}" if operation and target else str(entry.get("summary", ""))
    reason = entry.get("reason")
    return shown(f"{what} ({reason})" if reason else what)
