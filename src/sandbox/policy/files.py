"""Which files a tenant may read or change: the rules, as pure functions of a path. The mounts enforce the same.

Order of precedence, first match decides:

1. Outside everything visible                                   -> no
2. A blocked pattern, on the path or on a directory above it    -> no, unless an allowed pattern names the same thing
3. `deny_read`                                                  -> no, unless a narrower visible path covers it
4. For a write: a file that programs on the host would run, `deny_write`, then a read-only place -> no
"""

from __future__ import annotations

import posixpath

from sandbox.config.patterns import Patterns, fold
from sandbox.policy.decision import Decision
from sandbox.policy.protected import git_name, protected_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandbox.config.model import Filesystem

# The visible part of the system: programs and libraries, read-only.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# The sandbox's own directories, without files of the host.
OWN = ("/tmp", "/var/tmp", "/dev", "/proc", "/run")


class FileGuard:
    """The file rules of one sandbox. `filesystem.root` is absolute, `home` is the user's home directory."""

    def __init__(self, filesystem: Filesystem, *, home: str, system: Sequence[str] = SYSTEM) -> None:
        self.root = posixpath.normpath(filesystem.root)
        self.home = home
        self.read_only = filesystem.read_only
        self.system = system
        self.blocked = Patterns(filesystem.blocked_patterns)
        self.allowed = Patterns(filesystem.allowed_patterns)
        self.protected = protected_in(filesystem)
        self.show_host = filesystem.show_host
        self.allow_read = self._paths(filesystem.allow_read)
        self.allow_write = self._paths(filesystem.allow_write)
        self.deny_read = self._paths(filesystem.deny_read)
        self.deny_write = self._paths(filesystem.deny_write)

    def check(self, path: str, operation: str = "read") -> Decision:
        """Whether `path` may be used for `operation` ("read" or "write"). Relative paths start at the project."""
        absolute = self._absolute(path)
        top = self._visible_under(absolute)
        if top is None:
            return self._elsewhere(absolute, operation)
        pattern = self.blocked_by(absolute, top)
        if pattern is not None:
            return Decision(False, "sensitive-file-pattern", "Matches blocked pattern: {pattern}", pattern=pattern)
        denied = narrowest(absolute, self.deny_read)
        if denied is not None:
            back = narrowest(absolute, [self.root, *self.allow_read, *self.allow_write])
            if back is None or len(back) <= len(denied):
                return _deny_read(denied)
        if operation != "read":
            return self._write(absolute, top)
        return self._readable(top)

    def place(self, path: str, operation: str = "read") -> Decision:
        """As `check`, but by the location of the path only: the caller knows which files are hidden or frozen."""
        absolute = self._absolute(path)
        top = self._visible_under(absolute)
        if top is None:
            return self._elsewhere(absolute, operation)
        return self._readable(top) if operation == "read" else self._writable(absolute, top)

    def _readable(self, top: str) -> Decision:
        inside = top == self.root
        return Decision(True, "within-project-root" if inside else "allow-read", "Within {top}", top=top)

    def blocked_by(self, absolute: str, top: str) -> str | None:
        """The blocked pattern that covers the path, or a directory above it up to `top`."""
        for relative in _steps(absolute, top):
            # A name does not say whether the last part is a directory; assuming that it is one is stricter.
            pattern = self.blocked.match(relative, True)
            if pattern is not None and not git_name(relative) and not self.allowed.match(relative, True):
                return pattern
        return None

    def _write(self, absolute: str, top: str) -> Decision:
        for relative in _steps(absolute, top):
            pattern = self.protected.match(relative, True)
            if pattern is not None:
                return Decision(False, "protected-file", "Programs on the host act on it: {pattern}", pattern=pattern)
        denied = narrowest(absolute, self.deny_write)
        if denied is not None:
            return Decision(False, "deny-write", "Denied by filesystem.deny_write: {pattern}", pattern=denied)
        return self._writable(absolute, top)

    def _writable(self, absolute: str, top: str) -> Decision:
        # An `allow_read` entry within the project makes a path readable despite a rule; it does not affect writing.
        readable = narrowest(absolute, [one for one in self.allow_read if not within(one, self.root)]) or ""
        writable = narrowest(absolute, self.allow_write)
        if writable is not None and len(writable) >= len(readable):
            return Decision(True, "allow-write", "Within {top}", top=writable)
        if narrowest(top, [self.root]) is None:
            return Decision(False, "read-only-path", "{top} is read-only (filesystem.allow_read)", top=top)
        if self.read_only:
            return Decision(False, "read-only-root", "The project is read-only (filesystem.read_only)")
        return Decision(True, "within-project-root", "Within {top}", top=top)

    def _elsewhere(self, absolute: str, operation: str) -> Decision:
        if self.show_host:
            return self._of_the_host(absolute, operation)
        # A home directory below /tmp still belongs to the host.
        if narrowest(absolute, OWN) is not None and narrowest(absolute, [self.home]) is None:
            return Decision(True, "own-scratch", "Belongs to the sandbox; contains no files of the host")
        top = narrowest(absolute, self.system)
        if top is not None:
            denied = narrowest(absolute, self.deny_read)
            if denied is not None and len(denied) >= len(top):
                return _deny_read(denied)
            if operation == "read":
                return Decision(True, "system", "Programs and libraries are readable")
            return Decision(False, "system", "The system is read-only")
        return Decision(False, "outside-project-root", "Outside project root")

    def _of_the_host(self, absolute: str, operation: str) -> Decision:
        denied = narrowest(absolute, self.deny_read)
        if denied is not None:
            return _deny_read(denied)
        if operation == "read" or narrowest(absolute, ("/dev",)) is not None:
            return Decision(True, "show-host", "Everything can be read that is not denied (filesystem.show_host)")
        return Decision(False, "show-host", "Only what filesystem.allow_write names can be changed")

    def _visible_under(self, absolute: str) -> str | None:
        return narrowest(absolute, [self.root, *self.allow_read, *self.allow_write])

    def _absolute(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        absolute = posixpath.normpath(posixpath.join(self.root, path))
        return (
            absolute[1:] if absolute.startswith("//") else absolute
        )  # POSIX keeps two leading slashes; Linux does not

    def _paths(self, paths: list[str]) -> list[str]:
        return [self._absolute(path) for path in paths]


def within(path: str, top: str) -> bool:
    """Whether `path` is `top` or lies below it."""
    return top == "/" or path == top or path.startswith(f"{top}/")


def narrowest(path: str, tops: Sequence[str]) -> str | None:
    """The longest of `tops` that `path` lies in, compared as a case-folding file system would."""
    folded = fold(path)
    found = [top for top in tops if within(folded, fold(top))]
    return max(found, key=len, default=None)


def _steps(absolute: str, top: str) -> Iterator[str]:
    """`a`, `a/b`, `a/b/c` for a path below `top`."""
    # By components, not by length: two spellings of one directory can differ in length.
    depth = len(top.rstrip("/").split("/"))
    names = absolute.split("/")
    for end in range(depth + 1, len(names) + 1):
        yield "/".join(names[depth:end])


def _deny_read(pattern: str) -> Decision:
    return Decision(False, "deny-read", "Denied by filesystem.deny_read: {pattern}", pattern=pattern)
