"""Fits a patch to the files inside: everything is read and tried first, then written."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from sandbox.errors import InvalidArgument
from sandbox.info import PatchedFile
from sandbox.patches import codex_format, unified_format
from sandbox.patches.patch import FilePatch, Hunk

if TYPE_CHECKING:
    from sandbox.file_methods import FileMethods

TEXT_MOST = 64 * 2**20
PATCH_MOST = 16 * 2**20
EFFORT_MOST = 5_000_000  # lines compared to find the places of all hunks of a patch


def apply_patch(files: FileMethods, patch: str, directory: str) -> list[PatchedFile]:
    """Applies a patch below a directory. Raises InvalidArgument and UnicodeError, changing nothing, and OSError."""
    if len(patch) > PATCH_MOST:
        raise InvalidArgument("the patch is larger than {limit} bytes", limit=PATCH_MOST)
    form = codex_format if patch.lstrip().startswith(codex_format.BEGIN) else unified_format
    patches = form.read(patch)
    _once(patches)
    effort = Effort()
    planned = [_plan(files, directory, one, effort) for one in patches]
    done = []
    for one, content, mode in planned:
        path, target = _below(directory, one.path), _below(directory, one.target or one.path)
        if content is None:
            files.remove(path)
            done.append(PatchedFile(one.path, "deleted", None))
            continue
        if "/" in target.removeprefix(directory + "/"):
            files.mkdir(target.rpartition("/")[0])
        files.write_file(target, content, mode)
        if one.mode is not None:
            files.chmod(target, mode)
        if one.target is not None:
            files.remove(path)
        done.append(PatchedFile(one.path, "added" if one.kind == "add" else "updated", one.target))
    return done


class Effort:
    """What finding places may cost. One for a whole patch: many hunks are no way to more."""

    def __init__(self) -> None:
        self._left = EFFORT_MOST

    def spend(self, lines: int, path: str) -> None:
        self._left -= lines
        if self._left < 0:
            raise InvalidArgument("the lines of {path} are too much alike to find the place", path=path)


def _once(patches: list[FilePatch]) -> None:
    """Every section is fitted to the files as they are, so a second one for a file would undo the first."""
    seen: set[str] = set()
    for one in patches:
        for path in {posixpath.normpath(path) for path in (one.path, one.target) if path}:
            if path in seen:
                raise InvalidArgument("the patch names {path} twice", path=path)
            seen.add(path)


def _below(directory: str, path: str) -> str:
    if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise InvalidArgument("{path!r} is not a path below the directory", path=path[:200])
    return path if directory in (".", "") else f"{directory.rstrip('/')}/{path}"


def _plan(files: FileMethods, directory: str, patch: FilePatch, effort: Effort) -> tuple[FilePatch, bytes | None, int]:
    """The patch, the new content of its file (None: it is deleted) and its permissions."""
    path = _below(directory, patch.path)
    if patch.kind == "add":
        if files.exists(path):
            raise InvalidArgument("{path} exists already", path=patch.path)
        lines = [line for hunk in patch.hunks for line in hunk.new]
        return (
            patch,
            "\n".join([*lines, ""] if patch.ends_with_newline and lines else lines).encode(),
            patch.mode or 0o644,
        )
    info = files.stat(path)
    if patch.target is not None and files.exists(_below(directory, patch.target)):
        raise InvalidArgument("{path} exists already", path=patch.target)
    text = files.read_file(path, TEXT_MOST).decode()
    changed = _changed(text, patch, effort)
    if patch.whole and changed:
        raise InvalidArgument("{path} has other lines than those that the patch deletes", path=patch.path)
    return patch, None if patch.kind == "delete" else changed.encode(), patch.mode or info.mode


def _changed(text: str, patch: FilePatch, effort: Effort) -> str:
    """The text after all hunks, which come in the order of their places."""
    ends = text.endswith("\n") or not text
    lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []
    crlf = bool(lines) and all(line.endswith("\r") for line in lines)
    result: list[str] = []
    at = shift = 0
    for hunk in patch.hunks:
        old, new = (
            tuple(f"{line.rstrip(chr(13))}\r" if crlf else line for line in part) for part in (hunk.old, hunk.new)
        )
        place = _place(lines, Hunk(old, new, hunk.line, hunk.anchors), at, shift, patch.path, effort)
        if hunk.line is not None:
            shift = place - (hunk.line - 1)
        result += lines[at:place] + list(new)
        at = place + len(old)
    result += lines[at:]
    ends = ends if patch.ends_with_newline is None else patch.ends_with_newline
    return "\n".join(result) + ("\n" if ends and result else "")


def _place(lines: list[str], hunk: Hunk, start: int, shift: int, path: str, effort: Effort) -> int:
    """Where the hunk's old lines stand: at the line it names, else as near to it as they are found."""
    if hunk.line is not None and not hunk.anchors:
        wanted = hunk.line - 1 + shift
        if start <= wanted <= len(lines) - len(hunk.old) and lines[wanted : wanted + len(hunk.old)] == list(hunk.old):
            return wanted
    effort.spend(len(lines) // 4, path)
    for anchor in hunk.anchors:
        found = next((at for at in range(start, len(lines)) if lines[at].strip() == anchor.strip()), None)
        if found is None:
            raise InvalidArgument("{path} has no line {line!r}", path=path, line=anchor[:200])
        start = found + 1
    size, last = len(hunk.old), len(lines) - len(hunk.old)
    if hunk.line is None:
        if not hunk.old:  # only new lines: after the anchor, or at the end
            return start if hunk.anchors else len(lines)
        places: list[int] = list(range(start, last + 1))
    else:
        wanted = hunk.line - 1 + shift
        places = sorted(range(start, last + 1), key=lambda at: abs(at - wanted))
    for same in (str, str.rstrip):  # models lose white space at the ends of lines
        old, new = [same(line) for line in hunk.old], [same(line) for line in lines]
        for at in places:
            matched = 0
            while matched < size and new[at + matched] == old[matched]:
                matched += 1
            if matched == size:
                return at
            effort.spend(matched + 1, path)
    first = next((line for line in hunk.old if line.strip()), "")
    raise InvalidArgument("{path} has no such lines: {line!r} and what follows", path=path, line=first[:200])
