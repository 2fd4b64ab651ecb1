"""Unified diffs, as `diff -u` and `git diff` print them."""

from __future__ import annotations

import re

from sandbox.errors import InvalidArgument
from sandbox.patches.patch import FilePatch, Hunk

RANGES = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
NOTHING = "/dev/null"
HEADERS = (
    "rename from", "rename to", "copy from", "copy to", "new file mode", "deleted file mode", "new mode", "old mode",
    "index",
)  # fmt: skip


def read(text: str) -> list[FilePatch]:
    """The files that the patch names. Raises InvalidArgument."""
    lines = text.split("\n")
    patches: list[FilePatch] = []
    said: dict[str, str] | None = None  # what git says before a file's hunks, if it has said nothing else yet
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git "):
            patches += _without_hunks(said)
            said = {"diff --git": line[len("diff --git ") :].rstrip("\r")}
        elif line.startswith(("Binary files ", "GIT binary patch")):
            raise InvalidArgument("the patch changes a binary file, which only git can do")
        elif line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            hunks, end, newline = _hunks(lines, at + 2)
            patches.append(_file(_name(line), _name(lines[at + 1]), hunks, newline, said or {}))
            said = None
            at = end
            continue
        elif said is not None:
            key = next((key for key in HEADERS if line.startswith(f"{key} ")), None)
            if key in ("copy from", "copy to"):
                raise InvalidArgument("the patch copies a file, which only git can do")
            if key is not None:
                said[key] = line[len(key) + 1 :].rstrip("\r")
                _check_mode(key, said[key])
        at += 1
    patches += _without_hunks(said)
    if not patches:
        raise InvalidArgument("this is neither a unified diff nor a patch that begins with `*** Begin Patch`")
    return patches


def _check_mode(key: str, value: str) -> None:
    """Raises InvalidArgument for a symbolic link or a submodule: their text is no content of a file."""
    mode = value if key.endswith("mode") else value.partition(" ")[2] if key == "index" else ""
    if mode and not re.fullmatch(r"100[0-7]{3}", mode):
        raise InvalidArgument("the patch changes a link or a submodule, which only git can do")


def _without_hunks(said: dict[str, str] | None) -> list[FilePatch]:
    """What git says about a file of which no line changes: it moves, is empty, or has other permissions."""
    if said is None or not said.keys() & set(HEADERS) - {"index"}:
        return []
    if "rename from" in said or "rename to" in said:
        old, new = (_name(f"    {said.get(key, '')}", prefixed=False) for key in ("rename from", "rename to"))
        return [_file(old, new, [], None, said)]
    both = said["diff --git"]
    middle = len(both) // 2
    old, new = _name(f"    {both[:middle]}"), _name(f"    {both[middle + 1 :]}")
    if old != new or both[middle : middle + 1] != " ":
        raise InvalidArgument("a path in quotes is not supported: {name}", name=both[:200])
    if "new file mode" in said:
        old = NOTHING
    elif "deleted file mode" in said:
        new = NOTHING
    return [_file(old, new, [], None, said)]


def _file(old: str, new: str, hunks: list[Hunk], newline: bool | None, said: dict[str, str]) -> FilePatch:
    mode = said.get("new file mode") or said.get("new mode")
    bits = int(mode[-3:], 8) if mode is not None and re.fullmatch(r"100[0-7]{3}", mode) else None
    if old == NOTHING:
        return FilePatch("add", new, tuple(hunks), None, bits, True if newline is None else newline)
    if new == NOTHING:
        return FilePatch("delete", old, tuple(hunks), whole=True)
    return FilePatch("update", old, tuple(hunks), new if new != old else None, bits, newline)


def _name(line: str, prefixed: bool = True) -> str:
    name = line[4:].split("\t")[0].rstrip("\r")
    if name.startswith('"'):
        raise InvalidArgument("a path in quotes is not supported: {name}", name=name[:200])
    return name if not prefixed or name == NOTHING or name[:2] not in ("a/", "b/") else name[2:]


def _hunks(lines: list[str], at: int) -> tuple[list[Hunk], int, bool | None]:
    """The hunks that begin at a line, the line after them, and whether the new file ends with a newline, if it says."""
    hunks: list[Hunk] = []
    newline: bool | None = None
    while at < len(lines) and (found := RANGES.match(lines[at])):
        start, counts = int(found[1]), [int(found[2] or 1), int(found[4] or 1)]
        old: list[str] = []
        new: list[str] = []
        at += 1
        while (len(old), len(new)) != (counts[0], counts[1]):
            if at >= len(lines) or len(old) > counts[0] or len(new) > counts[1]:
                raise InvalidArgument("the line counts of this hunk do not match its lines: {line}", line=found[0])
            kind, text = lines[at][:1], lines[at][1:]
            if kind not in ("", " ", "-", "+", "\\"):
                raise InvalidArgument("not a line of a patch: {line!r}", line=lines[at][:200])
            if kind in ("", " ", "-"):
                old.append(text)
            if kind in ("", " ", "+"):
                new.append(text)
            at += 1
            if at < len(lines) and lines[at].startswith("\\ No newline"):
                newline = False if kind != "-" else (True if newline is None else newline)
                at += 1
        hunks.append(Hunk(tuple(old), tuple(new), start if old else start + 1))
    return hunks, at, newline
