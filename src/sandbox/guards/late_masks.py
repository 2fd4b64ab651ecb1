"""Covers blocked files that appear after the start.

A cover is a mount on a name. A file that is created on the host later has none. And a program on the host that saves
by renaming a new file over the old one, as editors do, removes the cover, because a mount inside cannot stop anybody
outside. So the directories are watched (`appearances.py`), and the cover is mounted (again) in the sandbox's mount
namespace, which its owner may enter. A file is uncovered for about a millisecond after it appears: `docs/limits.md`
says what that means.

Tenants can make names, too, in order that a file of the person's waits its turn among them. When too many wait, the
tenants are stopped until all have been looked at. When a file cannot be covered, or there are too many, they are ended.

Short runs never get here, because watching starts after a delay (`watch_later.py`). A sandbox has a thread of its own
only while there is something to look at.
"""

from __future__ import annotations

import os
from errno import EMFILE
from itertools import islice
from threading import Event, RLock, Thread, current_thread

from sandbox.errors import Message
from sandbox.guards.blocked_files import NotRemembered
from sandbox.guards.covers import Covers, Mask, inside_one
from sandbox.guards.late_covers import FAILED, LateCovers
from sandbox.guards.late_names import cover_named_at
from sandbox.guards.pace import Pace
from sandbox.guards.search import SOCKET, Search, is_socket
from sandbox.guards.watch_later import DELAY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sandbox.guards.appearances import Appearances, Appeared
    from sandbox.guards.frozen_files import FrozenFiles
    from sandbox.guards.late_covers import Tenants
    from sandbox.guards.repositories import Repositories
    from sandbox.guards.scan import Scanner

FEW = 100  # failures that are reported one by one
MOST_WAITING = 16384  # names in the queue; beyond that, everything is searched again
AT_ONCE = 512  # names that are looked at before those that were found are covered
UNSEEN = "it could not be checked"  # why such a file is hidden
BINDING = 0.005  # a socket's file appears a little before the kernel lists the socket

NO_QUEUE = Message(
    "blocked files that appear while the sandbox runs are not hidden: all your inotify instances are in use "
    "(raise fs.inotify.max_user_instances)"
)
NO_WATCH = Message(
    "blocked files that appear while the sandbox runs are hidden only in some directories: all your inotify watches "
    "are in use (raise fs.inotify.max_user_watches)"
)
NOT_REMEMBERED = Message(
    "a blocked file appeared while the sandbox ran, and could not be added to the list of blocked files in ~/.sandbox, "
    "so a later run would not know it under another name: is the disk full?"
)


class LateMasks:
    """Watches for one sandbox until closed. Calls `tell(summary, path, rule)` for each file that was covered or could
    not be, and `notice` with a message for the person when not everything can be watched.
    """

    def __init__(
        self,
        tenants: Tenants,
        pid: int,
        looker: Scanner,
        tell: Callable[[str, str, str], object],
        notice: Callable[[str], object],
        repositories: Repositories | None = None,
        lifted: Collection[str] = (),
        frozen: FrozenFiles | None = None,
        first: Callable[[], object] = lambda: None,
    ) -> None:
        """`lifted`: paths inside that the owner has uncovered. `first` is called when the watch begins, in its thread.
        Raises RuntimeError when no thread can be started."""
        self._tenants = tenants
        self._covers = LateCovers(pid, looker.views, lifted, tell, notice, tenants, frozen)
        self._pace = Pace(tenants)
        self._looker = looker
        self._roots = looker.views.roots
        self._tell = tell
        self._notice = notice
        self._complete = True  # whether every directory is watched
        self._failures = 0
        self._repositories = repositories
        self._first = first
        self._appearances: Appearances | None = None
        self._search: Search | None = None
        self._covered: dict[str, Mask] = {}
        self._closing = Event()
        self.watching = Event()  # set when everything is watched
        # Reentrant: a garbage collection under the lock may close a forgotten sandbox.
        self._lock = RLock()
        self._waiting: dict[Appeared, None] = {}  # in the order in which they appeared, each once
        self._worker: Thread | None = None
        self._work()

    def close(self) -> None:
        """Ends the watch. Idempotent."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            worker = self._worker
        if worker is not None and worker is not current_thread():  # a forgotten sandbox is collected in any thread
            worker.join()
        if self._appearances is not None:
            self._appearances.close()
        self._covers.close()

    def catch_up(self, patience: float) -> bool:
        """Waits until everything that has appeared until now is covered, at most about `patience` seconds. Returns
        whether it is, as far as anything is watched."""
        if not self.watching.wait(patience):
            return False
        if self._appearances is not None:
            self._appearances.read_now()
        with self._lock:
            worker = self._worker
        if worker is not None:
            worker.join(patience)
        return worker is None or not worker.is_alive()

    # -- when there is something to look at

    def _hear(self, appeared: list[Appeared]) -> None:
        """Called in the thread that reads for all sandboxes."""
        with self._lock:
            self._waiting.update(dict.fromkeys(appeared))
            if len(self._waiting) > MOST_WAITING:
                self._waiting = {(None, False): None}
        try:
            self._work()
        except RuntimeError:  # no thread can be started now: try again with the next name
            pass

    def _work(self) -> None:
        """Starts a thread for what is queued, if there is none. Raises RuntimeError when no thread can be started."""
        with self._lock:
            if self._worker is None and not self._closing.is_set():
                worker = Thread(target=self._run, name="sandbox-late-masks", daemon=True)
                worker.start()
                self._worker = worker

    def _run(self) -> None:
        if self._search is None and not self._attempt(self._begin):
            self.watching.set()
            with self._lock:
                self._worker = None  # the next name that appears tries again
            return
        self._look_at_all()
        if self._closing.is_set():  # else it has let them go, and another thread may have stopped them since
            self._pace.caught_up()

    def _look_at_all(self) -> None:
        while (appeared := self._next()) is not None:
            self._pace.keep(len(self._waiting), lost=(None, False) in appeared)
            # One name at which it fails must not leave the others uncovered.
            if not self._attempt(self._look_at, appeared, quietly=True):
                for one in appeared:
                    if not self._attempt(self._look_at, [one]):
                        self._hide(*one)
            if not self._waiting:
                self._pace.caught_up()

    def _attempt(self, work: Callable[..., object], *given: object, quietly: bool = False) -> bool:
        try:
            work(*given)
        except NotRemembered:
            if not quietly:  # before a tenant moves it to where no rule names it
                self._tenants.end(NOT_REMEMBERED)
            return False
        except Exception as problem:  # noqa: BLE001 - never silently: the person and whoever reads the record learn of it
            full = isinstance(problem, OSError) and problem.errno == EMFILE and self._appearances is None
            why = Message("blocked files that appear while the sandbox runs are not hidden: {problem}", problem=problem)
            self._failures += not quietly
            if not quietly and self._failures <= FEW:  # a tenant may be able to cause any number of them
                self._unwatched(NO_QUEUE if full else why, self._roots[0])
            return False
        return True

    def _hide(self, path: str | None, is_dir: bool) -> None:
        """Hides what could not be looked at, whatever it is. Ends the tenants if that cannot be done either."""
        if self._closing.is_set():
            return
        if path is None or not self._attempt(self._covers.add, {path: Mask(path, is_dir, UNSEEN)}):
            self._tenants.end(FAILED)

    def _next(self) -> list[Appeared] | None:
        """What is queued; None when the queue is empty, and this thread ends."""
        with self._lock:
            appeared = [*islice(self._waiting, AT_ONCE)]
            if appeared and not self._closing.is_set():
                for one in appeared:
                    del self._waiting[one]
                return appeared
            self._worker = None
            return None

    def _unwatched(self, message: Message, path: str) -> None:
        self._tell(message, path, "late-masks")
        self._notice(message)

    def _begin(self) -> None:
        # Imported here, because it loads ctypes.
        from sandbox.guards.appearances import Appearances

        self._first()
        self._covers.open()
        if self._appearances is None:
            self._appearances = Appearances(self._hear)
        # Watch first, then search: what appears in between is seen by one of the two.
        for root in self._roots:
            self._add(root)
        self._covers.freeze([(None, False)])
        looked = self._looker.look()
        self._covered = _of_the_host(looked.found.masks, self._closing)
        self._covers.add(self._covered)
        if self._repositories is not None:
            self._repositories.look_again()
        self._search = self._looker.again(looked)
        self.watching.set()

    def _look_at(self, appeared: list[Appeared]) -> None:
        search = self._search
        assert search is not None
        search.found, search.inodes = Covers(), {}
        self._covers.freeze(appeared)  # first: until then tenants can write to it, and it is read below
        found: dict[str, Mask] = {}
        if any(path is None for path, _ in appeared):  # some were lost: search everything
            for root in self._roots:
                self._add(root)
            found = self._looker.look().found.masks
            if self._repositories is not None:
                self._repositories.look_again()
            self._closing.wait(DELAY)  # a tenant that floods the queue must not keep a processor busy
        for path, is_dir in appeared:
            if self._closing.is_set():
                return  # the end does not wait for what a tenant has piled up
            if path is not None:
                found.update(self._look_at_one(search, path, is_dir))
        # Again: what was made in them before they were watched is told by nobody.
        self._covers.freeze([(path, is_dir) for path, is_dir in appeared if is_dir or path is None])
        found.update(self._found(search))
        # What is below a cover is out of reach, and looking for it there would trip a tripwire.
        found = {path: mask for path, mask in found.items() if not inside_one(path, self._covered)}
        found = _of_the_host(found, self._closing)
        self._covers.add(found)
        self._covered.update(found)  # only now: what failed is looked at once more, by itself

    def _look_at_one(self, search: Search, path: str, is_dir: bool) -> dict[str, Mask]:
        """Adds to `search.found`; returns sockets."""
        if is_dir:
            self._add(path)
        self._look_at_git(path)
        if not is_dir and os.path.islink(path):
            search.links.append(path)
        cover_named_at(search, self._looker.secrets, path, is_dir)
        if is_dir or search.could_match(os.path.basename(path)) or _known(search, path):
            self._blocked(search, path, is_dir)
            return {}
        return {path: Mask(path, False, SOCKET)} if is_socket(path) else {}

    def _add(self, root: str) -> None:
        assert self._appearances is not None
        waiting = [root]
        while waiting:
            directory = waiting.pop()
            if directory in self._looker.hidden:
                continue
            if not self._appearances.add(directory):
                if self._complete:
                    self._complete = False
                    self._unwatched(NO_WATCH, directory)
                return
            try:
                with os.scandir(directory) as entries:
                    waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError:
                continue

    def _blocked(self, search: Search, path: str, is_dir: bool) -> None:
        """Looks for what to cover at a path that appeared, by the same search as at the start."""
        top = next((root for root in self._roots if path.startswith(f"{root.rstrip('/')}/")), None)
        if top is None:
            return
        covered = search.match(path, path[len(top.rstrip("/")) + 1 :], os.path.dirname(path))
        if is_dir and not covered:
            search.walk_below(path, top)

    def _found(self, search: Search) -> dict[str, Mask]:
        """What to cover of everything that was looked at. It is written down first, before anybody can move it."""
        if self._repositories is not None:
            self._repositories.appeared(search.found.heads, search.found.git_files)
        search.follow_links()
        search.cover_links()
        if search.blocked_before is not None:
            search.blocked_before.save()
        return search.found.masks

    def _look_at_git(self, path: str) -> None:
        """Undoes at once what the host's git would run. A new repository is also watched for writes."""
        assert self._appearances is not None
        if self._repositories is not None and self._repositories.look(path):
            self._appearances.add(os.path.dirname(path), written=True)


def _of_the_host(masks: dict[str, Mask], closing: Event) -> dict[str, Mask]:
    """Leaves out the sockets that tenants created themselves."""
    sockets = [path for path, mask in masks.items() if mask.rule == SOCKET]
    if not sockets:
        return masks
    from sandbox.guards.host_sockets import sockets_of_the_host

    closing.wait(BINDING)
    try:
        theirs = set(sockets) - set(sockets_of_the_host(sockets))
    except OSError:
        return masks  # the kernel does not say whose they are
    return {path: mask for path, mask in masks.items() if path not in theirs}


def _known(search: Search, path: str) -> bool:
    """Whether it may have been blocked under another name."""
    try:
        return os.lstat(path).st_ino in search.known
    except OSError:
        return False
