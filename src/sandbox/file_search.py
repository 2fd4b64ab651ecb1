"""Searching below a directory inside: by name, as an indented tree, and by content.

Names and contents come from inside. Names are compared on the host, one path component at a time; regular expressions,
which can take forever, run inside, where the sandbox's limits apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import TYPE_CHECKING

from sandbox.errors import CommandError, InvalidArgument, SandboxClosed, SandboxError
from sandbox.info import FileInfo, GrepMatch
from sandbox.result import ExecResult

if TYPE_CHECKING:
    from sandbox.file_methods import FileMethods

ENTRIES_MOST = 200_000  # names that one search looks at
DEPTH_MOST = 64
LINE_MOST = 500  # characters of a line that matched
GREP_BYTES = 4 * 2**20
GREP_SECONDS = 60.0
# A short expression can use up all memory, and not every sandbox has a limit.
GREP_BOUNDED = ["/bin/sh", "-c", 'ulimit -v 1048576; exec "$@"', "sh", "grep"]


def glob(files: FileMethods, pattern: str, path: str, limit: int) -> list[str]:
    """The paths below `path` that match."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or pattern.startswith("/"):
        raise InvalidArgument("{pattern!r} is not a pattern for names below a directory", pattern=pattern)
    matchers: list[Callable[[str], object] | None] = [
        None if part == "**" else re.compile(translate(part)).match for part in parts
    ]
    show_git = any(part.startswith(".git") for part in parts)
    found: list[str] = []
    for name, _ in _walk(files, path, show_git):
        if len(found) >= limit:
            break
        if _fits(name.split("/"), matchers):
            found.append(name if path in (".", "") else f"{path.rstrip('/')}/{name}")
    return found


def _fits(names: list[str], matchers: list[Callable[[str], object] | None]) -> bool:
    """Whether the names match, `None` standing for any number of them. Linear in both: no backtracking over `**`."""
    reached = {0}
    for matcher in matchers:
        if matcher is None:
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and matcher(names[at])}
        if not reached:
            return False
    return len(names) in reached


def tree(files: FileMethods, path: str, depth: int, limit: int) -> str:
    """What is below `path`, indented."""
    lines = [f"{path.rstrip('/') or '/'}/"]
    for name, info in _walk(files, path, show_git=False, depth=depth):
        if len(lines) > limit:
            lines.append("…")
            break
        mark = {"directory": "/", "symlink": "@"}.get(info.kind, "")
        lines.append("  " * (name.count("/") + 1) + _printable(info.name) + mark)
    return "\n".join(lines) + "\n"


def _walk(files: FileMethods, path: str, show_git: bool, depth: int = DEPTH_MOST) -> Iterator[tuple[str, FileInfo]]:
    """Everything below a directory, parents first and in order; directories that cannot be listed are left out."""
    left = ENTRIES_MOST
    waiting: list[tuple[str, FileInfo]] = []

    def look(directory: str) -> None:
        try:
            inside = files.list_files(f"{path}/{directory}" if directory else path)
        except (OSError, SandboxError) as problem:  # not readable, gone, or too large
            if not directory or isinstance(problem, SandboxClosed):
                raise
            return
        below = f"{directory}/" if directory else ""
        entries = [(below + one.name, one) for one in inside if show_git or one.name != ".git"]
        waiting.extend(sorted(entries, key=lambda entry: entry[0], reverse=True))

    look("")
    while waiting and left:
        name, info = waiting.pop()
        left -= 1
        yield name, info
        if info.is_dir and name.count("/") + 1 < depth:
            look(name)


def grep(
    run: Callable[..., ExecResult], pattern: str, path: str, glob: str | None, ignore_case: bool, limit: int
) -> list[GrepMatch]:
    """The lines below `path` that match."""
    words = [*GREP_BOUNDED, "-rHnIEZs", "--devices=skip", "--exclude-dir=.git", f"-m{max(1, limit)}"]
    words += ["-i"] if ignore_case else []
    words += [f"--include={glob}"] if glob is not None else []
    result = run(
        [*words, "-e", pattern, "--", path], timeout=GREP_SECONDS, max_output=GREP_BYTES, env={"LC_ALL": "C.UTF-8"}
    )
    if result.exit_code > 1 and not result.stdout_bytes:
        if result.timed_out:
            raise CommandError("grep did not end within {seconds} seconds", seconds=int(GREP_SECONDS), exit_code=124)
        if result.stderr.strip():
            raise InvalidArgument("{problem}", problem=_printable(result.stderr.strip().splitlines()[-1][:LINE_MOST]))
        if result.exit_code > 128:  # by a signal; with `-s` it is 2, silently, for files that cannot be read
            raise CommandError("grep was killed, perhaps for lack of memory", exit_code=result.exit_code)
    return list(_matches(result.stdout_bytes, limit))


def _matches(output: bytes, limit: int) -> Iterator[GrepMatch]:
    for line in output.split(b"\n"):
        name, found, rest = line.partition(b"\0")
        number, colon, text = rest.partition(b":")
        if limit <= 0:
            return
        if found and colon and number.isdigit():
            limit -= 1
            shown = text.decode(errors="replace")
            file = name.decode(errors="surrogateescape")
            yield GrepMatch(
                file.removeprefix("./"), int(number), shown[:LINE_MOST] + ("…" if len(shown) > LINE_MOST else "")
            )


def _printable(name: str) -> str:
    """A name on one line, whatever it holds."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)
