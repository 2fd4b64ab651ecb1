"""Blocked names that appear after the start, or come back: covered as soon as they are seen.

A cover is a mount on a name. A file made on the host later has none, and a program on the host that saves by
renaming a new file over the old one (as editors do) takes the old one's cover away with it: the kernel lets
nobody outside be stopped by a mount inside. So a thread watches the directories by inotify and puts the cover
(back) on, in the sandbox's own mount namespace, which its owner may enter. Between the file's appearing and
its cover lies about a millisecond: `docs/limits.md` says what that means.

Short runs never get here: the thread waits a moment before it does anything.
"""

from __future__ import annotations

import os
from threading import Event, Thread, current_thread

from sandbox.guards.covers import Covers, Mask, inside_one
from sandbox.guards.host_sockets import sockets_of_the_host
from sandbox.guards.search import SOCKET, Search, is_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.guards.repositories import Repositories
    from sandbox.guards.scan import Scanner

DELAY = 0.25  # seconds of life before the watch begins
MOST = 4096  # covers put on in one life
FEW = 100  # told one by one
BINDING = 0.005  # a socket's name appears a little before the kernel lists whose it is


class LateMasks:
    """Watches for one sandbox until closed. `tell(summary, path, rule)` hears what was covered or could not
    be.
    """

    def __init__(
        self,
        pid: int,
        looker: Scanner,
        tell: Callable[[str, str, str], object],
        repositories: Repositories | None = None,
    ) -> None:
        self._pid = pid
        self._looker = looker
        self._views = looker.views
        self._roots = looker.views.roots
        self._tell = tell
        self._count = 0
        self._repositories = repositories
        self._closing = Event()
        self.watching = Event()  # set when everything is watched
        self._wake = os.pipe()
        self._thread = Thread(target=self._run, name="sandbox-vigil", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the watch. Idempotent."""
        if not self._closing.is_set():
            self._closing.set()
            os.write(self._wake[1], b".")
            if self._thread is not current_thread():  # a forgotten sandbox is collected in any thread
                self._thread.join()
            for fd in self._wake:
                os.close(fd)

    def _run(self) -> None:
        if self._closing.wait(DELAY):
            return
        try:
            namespace = os.open(f"/proc/{self._pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            self._tell(f"what appears later is not covered: {problem}", self._roots[0], "vigil")
            self.watching.set()
            return
        try:
            with Watches() as watches:
                self._watch(watches, namespace)
        except Exception as problem:  # noqa: BLE001 - never silently: whoever reads the record learns of it
            self._tell(f"what appears later is not covered: {problem}", self._roots[0], "vigil")
            self.watching.set()
        finally:
            os.close(namespace)

    def _watch(self, watches: Watches, namespace: int) -> None:
        import select

        # Watch first, look then: what appears in between is seen by one of the two.
        for root in self._roots:
            self._add(watches, root)
        covered = self._of_the_host(self._looker.look().found.masks)
        self._cover(namespace, set(covered), quietly=True)
        if self._repositories is not None:
            self._repositories.look_again()
        poller = select.poll()
        poller.register(watches.fd, select.POLLIN)
        poller.register(self._wake[0], select.POLLIN)
        self.watching.set()
        search = self._looker.again()
        while True:
            if any(fd == self._wake[0] for fd, _ in poller.poll()):
                return
            appeared = list(watches.read())
            found: dict[str, Mask] = {}
            if any(path is None for path, _ in appeared):  # the queue overflowed: look at everything
                for root in self._roots:
                    self._add(watches, root)
                found = self._looker.look().found.masks
                self._closing.wait(DELAY)  # a tenant that floods the queue must not keep us busy with nothing else
            for path, is_dir in appeared:
                if path is None:
                    if self._repositories is not None:
                        self._repositories.look_again()
                    continue
                if is_dir:
                    self._add(watches, path)
                self._look_at_git(watches, path)
                if is_dir or search.could_match(os.path.basename(path)) or self._known(search, path):
                    found.update(self._blocked(search, path, is_dir))
                elif is_socket(path):
                    found[path] = Mask(path, False, SOCKET)
            # What lies behind a cover is out of reach, and looking for it there would be an attempt like any other.
            found = {path: mask for path, mask in found.items() if not inside_one(path, covered)}
            found = self._of_the_host(found)
            if found and self._count < MOST:
                covered.update(found)
                self._cover(namespace, set(found), rules=found)

    def _known(self, search: Search, path: str) -> bool:
        """Whether it may have been blocked under another name."""
        try:
            return os.lstat(path).st_ino in search.known
        except OSError:
            return False

    def _add(self, watches: Watches, root: str) -> None:
        waiting = [root]
        while waiting:
            directory = waiting.pop()
            if directory in self._looker.hidden:
                continue
            if not watches.add(directory):
                self._tell("too many directories to watch; some later files are not covered", directory, "vigil")
                return
            try:
                with os.scandir(directory) as entries:
                    waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError:
                continue

    def _blocked(self, search: Search, path: str, is_dir: bool) -> dict[str, Mask]:
        """What is to be covered of a path that appeared, by the same search as at the start."""
        top = next((root for root in self._roots if path.startswith(f"{root.rstrip('/')}/")), None)
        if top is None:
            return {}
        search.found, search.inodes = Covers(), {}
        covered = search.match(path, path[len(top.rstrip("/")) + 1 :], os.path.dirname(path))
        if is_dir and not covered:
            search.walk_below(path, top)
        if self._repositories is not None:
            self._repositories.appeared(search.found.heads, search.found.git_files)
        search.cover_links()
        if search.blocked_before is not None:
            search.blocked_before.save()
        return search.found.masks

    def _look_at_git(self, watches: Watches, path: str) -> None:
        """What git of the host would run is undone at once. A new repository is watched for writing as well."""
        if self._repositories is not None and self._repositories.look(path):
            watches.add(os.path.dirname(path), written=True)

    def _of_the_host(self, masks: dict[str, Mask]) -> dict[str, Mask]:
        """Without the sockets among them that tenants made for themselves."""
        sockets = [path for path, mask in masks.items() if mask.rule == SOCKET]
        if not sockets:
            return masks
        self._closing.wait(BINDING)
        try:
            theirs = set(sockets) - set(sockets_of_the_host(sockets))
        except OSError:
            return masks  # nobody can tell
        return {path: mask for path, mask in masks.items() if path not in theirs}

    def _cover(
        self, namespace: int, paths: set[str], *, quietly: bool = False, rules: dict[str, Mask] | None = None
    ) -> None:
        from sandbox.guards.mount_in_namespace import cover

        inside = {shown: path for path in paths for shown in self._views.inside(path)}
        for shown, problem in cover(namespace, sorted(inside)):
            path = inside[shown]
            if problem is None and not quietly:
                self._count += 1
                # A tenant can make such names by the thousand: neither record nor mount table are theirs to fill.
                if self._count <= FEW or self._count % FEW == 0:
                    rule = rules[path].rule if rules else ""
                    self._tell(f"a blocked file appeared and was covered (number {self._count})", path, rule)
                if self._count == MOST:
                    self._tell("too many blocked files appear; no further ones are covered", path, "vigil")
            elif problem:
                self._tell(f"a blocked file appeared and could not be covered: {problem}", path, "vigil")


class Watches:
    """Names that appear in directories."""

    def __init__(self) -> None:
        from sandbox.inotify import Inotify

        self._inotify = Inotify()
        self.fd = self._inotify.fd
        self._places: dict[int, str] = {}

    def __enter__(self) -> Watches:
        return self

    def __exit__(self, *_: object) -> None:
        self._inotify.close()

    def add(self, directory: str, written: bool = False) -> bool:
        """Watches one directory; False when the kernel's bound is reached. `written`: also for files written there."""
        from errno import ENOSPC

        from sandbox.inotify import CLOSE_WRITE, CREATE, DONT_FOLLOW, MOVED_TO, ONLY_DIR

        try:
            wanted = CREATE | MOVED_TO | (CLOSE_WRITE if written else 0)
            number = self._inotify.add(directory, wanted | ONLY_DIR | DONT_FOLLOW)
        except OSError as problem:
            return problem.errno != ENOSPC  # gone again, or unreadable and so covered whole
        self._places[number] = directory
        return True

    def read(self) -> Iterator[tuple[str | None, bool]]:
        """What appeared: path and whether it is a directory. A None says that some was lost."""
        from sandbox.inotify import IGNORED, IS_DIR, OVERFLOW

        for number, mask, _, name in self._inotify.read():
            if mask & OVERFLOW:
                yield None, False
            elif mask & IGNORED:  # the directory is gone; a tenant may make and remove any number
                self._places.pop(number, None)
            elif number in self._places and name:
                yield f"{self._places[number].rstrip('/')}/{name}", bool(mask & IS_DIR)
