"""Which files a tool call of Claude Code names, and whether it may use them: by path, with links resolved.

These tools run on the host, so they get what a sandbox would show: the same rules by name, and the same hidden files by
identity (hard links, and targets of blocked links).
"""

from __future__ import annotations

import os
import re

from sandbox.guards.git_directories import READ
from sandbox.policy.decision import Decision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sandbox.config.layers import Resolved
    from sandbox.guards.covers import Mask

READS = ("Read", "Glob", "Grep", "LS", "NotebookRead")
WRITES = ("Write", "Edit", "MultiEdit", "NotebookEdit")
_SEARCHES = ("Glob", "Grep", "LS")  # without a path they mean the directory of the call
_KEYS = ("file_path", "notebook_path", "path")
# Keys of other tools (such as MCP servers') that contain a path, by a part of the key.
_KEY_PARTS = ("path", "file", "uri", "dir", "folder", "root", "source", "destination", "target", "location")
_READING = ("read", "get", "list", "search", "find", "view", "show", "stat", "info", "fetch", "query", "tree")
_MOST = 1000
_NO_FILES = ("WebSearch", "TodoWrite", "AskUserQuestion")  # Claude Code's own; their texts are for people
# In `.git`: texts that people write. Only git writes everything else there.
_PEOPLES = ("/.git/info/exclude", "/.git/description", "/.git/COMMIT_EDITMSG", "/.git/MERGE_MSG")


def well_formed(tool: str, given: dict[str, Any]) -> bool:
    """Whether a tool of Claude Code's own that is judged by a path or an address has one, and as text."""
    judged = [given[key] for key in (*_KEYS, "url") if given.get(key) is not None]
    if tool not in (*READS, *WRITES, "WebFetch"):
        return True
    return (bool(judged) or tool in _SEARCHES) and all(isinstance(one, str) for one in judged)


class FileJudge:
    """The file rules of one project, for calls made in `cwd`."""

    def __init__(self, resolved: Resolved, cwd: str) -> None:
        from sandbox.policy.files import FileGuard

        self._config = resolved.config
        self.cwd = cwd
        self.guard = FileGuard(self._config.filesystem, home=os.path.expanduser("~"))
        self._covered: dict[str, Mask] | None = None

    def call(self, tool: str, given: dict[str, Any]) -> Decision | None:
        """Why the call is refused; None if it is not."""
        for path, operation in self._named(tool, given):
            decision = self.path(path, operation)
            if not decision:
                return decision
        if tool == "Glob":
            return self._glob(given)
        return self._grep(given) if tool == "Grep" else None

    def path(self, path: str, operation: str) -> Decision:
        """Whether it may be used, however the tool reads its name."""
        for reading in _readings(path):
            decision = self._judged(reading, operation)
            if not decision:
                break
        return decision

    def _judged(self, path: str, operation: str) -> Decision:
        """By its name, by what the name resolves to, and by what a sandbox hides: the strictest of the three."""
        absolute = self.absolute(path)
        real = os.path.realpath(absolute)
        followed = os.path.realpath(self.joined(path))  # as the kernel reads `link/..`
        for one in (absolute, real, followed):
            decision = self.guard.check(one, operation)
            if decision.rule == "own-scratch" and not self._agents_own(one):
                # Inside, it would be the sandbox's own; this tool would use the host's.
                return Decision(False, "outside-project-root", "Outside project root")
            if not decision:
                return decision
            if operation == "write" and _is_gits(one):
                return Decision(False, "protected-file", "Programs on the host act on it: .git")
        mask = self._cover_of(real) or self._cover_of(followed)
        if mask is not None:
            return Decision(False, "sensitive-file-pattern", "Matches blocked pattern: {pattern}", pattern=mask.rule)
        return decision

    def absolute(self, path: str) -> str:
        """The path as the tool reads it, without `..`."""
        return os.path.normpath(self.joined(path))

    def joined(self, path: str) -> str:
        """The absolute path. A relative one is relative to the call's directory, not to the project."""
        if path.lower().startswith("file:"):
            from urllib.parse import unquote, urlsplit

            path = unquote(urlsplit(path).path)
        return os.path.join(self.cwd, os.path.expanduser(path))

    def _named(self, tool: str, given: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if tool in _NO_FILES:
            return
        known = "__" not in tool
        reads = tool in READS or (not known and _first_word(tool) in _READING)
        for key, value in _texts(given, ""):
            if known and tool in (*READS, *WRITES):
                named = key in _KEYS
            else:
                parts = any(part in key.lower() for part in _KEY_PARTS)
                named = self._is_path(value) if not parts else "://" not in value or value.lower().startswith("file:")
            if named and value:
                yield value, "read" if reads else "write"

    def _is_path(self, value: str) -> bool:
        """Whether a text under some other key is a path."""
        if len(value) > 4096 or "\n" in value or "\0" in value:
            return False
        if value.lower().startswith(("/", "~/", "./", "../", "file:")):
            return " " not in value or os.path.lexists(self.absolute(value))
        return value not in (".", "") and os.path.lexists(self.absolute(value))

    def _glob(self, given: dict[str, Any]) -> Decision | None:
        """A pattern searches below its literal beginning; a later `..` would lead further up."""
        pattern = str(given.get("pattern") or "")
        names = pattern.split("/")
        plain = next((at for at, name in enumerate(names) if any(sign in name for sign in "*?[{")), len(names))
        if ".." in names[plain:]:
            return Decision(False, "outside-project-root", "Outside project root")
        base = str(given.get("path") or ".")
        decision = self.path(
            os.path.join(base, "/".join(names[:plain]) or ("/" if pattern.startswith("/") else ".")), "read"
        )
        return None if decision else decision

    def _grep(self, given: dict[str, Any]) -> Decision | None:
        """A search prints what it finds, so it is refused if it would read a blocked file."""
        base = os.path.realpath(self.absolute(_readings(str(given.get("path") or "."))[-1]))
        glob = str(given.get("glob") or "")
        for mask in self.covered().values():
            if (mask.path + "/").startswith(base.rstrip("/") + "/") and self._reaches(glob, base, mask):
                shown = os.path.relpath(mask.path, self.guard.root)
                return Decision(
                    False,
                    "sensitive-file-pattern",
                    "The search would read {shown} (blocked pattern: {pattern}); use grep in "
                    "Bash instead, where blocked files cannot be read",
                    shown=shown,
                    pattern=mask.rule,
                )
        return None

    def _reaches(self, glob: str, base: str, mask: Mask) -> bool:
        if not glob or mask.is_dir or any(sign in "{}!,\\[" or sign.isspace() for sign in glob):
            return True
        from sandbox.config.patterns import Patterns

        return Patterns([glob]).match(os.path.relpath(mask.path, base), False) is not None

    def covered(self) -> dict[str, Mask]:
        """What a sandbox would hide; searched once."""
        if self._covered is None:
            from sandbox.guards.scan import hidden_now
            from sandbox.guards.search import SOCKET

            found = hidden_now(self._config, [self.guard.root, *self.guard.allow_read, *self.guard.allow_write])
            self._covered = {path: mask for path, mask in found.masks.items() if mask.rule != SOCKET}
        return self._covered

    def _cover_of(self, real: str) -> Mask | None:
        covered = self.covered()
        while real not in ("/", ""):
            if real in covered:
                return covered[real]
            real = os.path.dirname(real)
        return None

    def _agents_own(self, path: str) -> bool:
        """Where Claude Code stores the output of background commands, for its own tools to read."""
        return path.startswith(f"/tmp/claude-{os.getuid()}/")


def _is_gits(path: str) -> bool:
    """Whether git would take the file for a part of a repository. Nothing undoes what these tools write."""
    folded = f"{path.lower()}/"
    if "/.git/" in folded:
        return not path.endswith(_PEOPLES)
    directory, name = os.path.split(path)
    if _completes(path):
        return True
    if name == "HEAD":  # it would make the directory a repository
        return any(os.path.lexists(f"{directory}/{one}") for one in ("config", "commondir", "objects", "refs", "hooks"))
    if os.path.basename(directory) == "hooks":
        directory, name = os.path.dirname(directory), "hooks"
    return name in READ and os.path.lexists(f"{directory}/HEAD")


def _first_word(tool: str) -> str:
    """What an MCP tool does, by its name: "read" in `mcp__spreadsheet__read_rows` and in `mcp__x__readRows`."""
    name = tool.rpartition("__")[2]
    found = re.match(r"[^A-Za-z]*([A-Z]?[a-z]+|[A-Z]+)", name)
    return found[1].lower() if found else ""


def _completes(path: str) -> bool:
    """Whether `path` lies in the last directory that a directory above it needs to be a repository."""
    while path != "/":
        path, name = os.path.split(path)
        other = {"objects": "refs", "refs": "objects"}.get(name)
        if other and os.path.lexists(f"{path}/HEAD") and os.path.lexists(f"{path}/{other}"):
            return True
    return False


def _readings(path: str) -> list[str]:
    """The path as it is, and as a tool may read it: Claude Code strips blanks around it and composes letters."""
    from unicodedata import normalize

    bare = path
    while (less := bare.strip().strip("\ufeff")) != bare:
        bare = less
    return list(dict.fromkeys((path, bare, normalize("NFC", bare))))


def _texts(value: object, key: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every text in a call's input, with its key. Raises SandboxError if there are too many."""
    from sandbox.errors import SandboxError

    if depth > 20:
        raise SandboxError("the tool's input is nested too deeply to check")
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, str(name), depth + 1)
    elif isinstance(value, list):
        for count, inner in enumerate(value):
            if count > _MOST:
                raise SandboxError("the tool's input is too long to check")
            yield from _texts(inner, key, depth + 1)
