"""Everything that one sandbox does to protect the host's files.

Before it runs: reserves, freezes and hides. While it runs: covers what appears. At the end: undoes what programs on the
host would have run.
"""

from __future__ import annotations

import os
from _functools import partial

from sandbox.config.home import home
from sandbox.config.paths import is_beneath
from sandbox.errors import Message
from sandbox.guards.reports import GuardReports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from sandbox.audit.record import Record
    from sandbox.config.model import Config, Filesystem
    from sandbox.config.patterns import Patterns
    from sandbox.guards.frozen_files import FrozenFiles
    from sandbox.guards.late_covers import Tenants
    from sandbox.guards.late_masks import LateMasks
    from sandbox.guards.named_programs import NamedPrograms
    from sandbox.guards.path_programs import PathPrograms
    from sandbox.guards.provider_rules import ProviderRules
    from sandbox.guards.repositories import Repositories
    from sandbox.guards.reserved_dirs import ReservedDirs
    from sandbox.guards.search import Search
    from sandbox.guards.standby import Standing
    from sandbox.guards.views import Views
    from sandbox.guards.watch_later import WatchLater

    T = TypeVar("T")


class HostGuard:
    """Call the methods in the order in which they are written here, and `finish` when no tenant is left."""

    def __init__(self, record: Record) -> None:
        self._record_directory = record.directory
        self._reports = GuardReports(record)
        self._reserved: ReservedDirs | None = None
        self._protected: Callable[[], Patterns] | None = None  # if not the usual patterns
        self._repositories: list[Repositories] = []
        self._served: list[ProviderRules] = []
        self._programs: PathPrograms | None = None
        self._named: NamedPrograms | None = None
        self._frozen: FrozenFiles | None = None
        self._notice: Callable[[str], object] = _nothing
        self._pid = 0
        self._views: Views | None = None
        self._search: Search | None = None
        self._watching: WatchLater | None = None
        self._standing: Standing | None = None
        self.lifted: set[str] = set()  # paths inside that the owner has uncovered
        self.notices: list[Message] = []  # for the person, before it starts
        self.undone = self._reports.undone
        self.made: list[str] = []  # after `finish`: new files that programs on the host act on

    # -- before the walls are built

    def note_written(self, trees: Sequence[str]) -> None:
        """Writes down that tenants write into these directories of the host (`written_places.py`)."""
        for tree in trees:
            info = os.stat(tree)
            link = f"{home()}/written/{info.st_dev:x}-{info.st_ino:x}"
            if not os.path.lexists(link):
                from sandbox.guards.written_places import note  # seldom needed: not for a project that is noted already

                note(tree, link)

    def note_programs(self, places: Sequence[str]) -> None:
        """Writes down what is in these directories of the person's PATH, which tenants can write to."""
        from sandbox.guards.path_programs import PathPrograms

        self._programs = PathPrograms(places)

    def reserve(self, root: str, places: Sequence[str] = (), *, only_places: bool = False) -> list[str]:
        """Makes the directories of the project that tenants must not make, and `places`, where something is mounted.
        Returns the names of the new ones."""
        from sandbox.guards.reserved_dirs import ReservedDirs

        self._reserved = ReservedDirs(root, places=places, only_places=only_places)
        return self._reserved.names()

    def reserve_all(self, filesystem: Filesystem, root: str, trees: Sequence[str]) -> list[str]:
        """For `show_host`: makes what tenants must not make. Returns the files among it, which are empty."""
        from sandbox.guards.reserved_dirs import ReservedDirs, all_names, is_placeholder
        from sandbox.policy.protected import protected_patterns

        self._protected = partial(protected_patterns, True, filesystem.allow_git_config)
        more = all_names(root, trees)
        for entry in filesystem.deny_write:
            path = os.path.normpath(os.path.join(root, os.path.expanduser(entry)))
            above = os.path.dirname(path)
            while not os.path.isdir(above):  # an empty file of another sandbox is what we would make, too
                path, above = above, os.path.dirname(above)
            if any(sign in entry for sign in "*?[") or (os.path.lexists(path) and not is_placeholder(path)):
                continue
            if any(is_beneath(os.path.realpath(above), tree) for tree in trees):
                real = os.path.realpath(above)
                more.append((real, f"{real}/{os.path.basename(path)}", False))
        self._reserved = ReservedDirs(root, more=more)
        return self._reserved.files

    def trust(self, trees: Sequence[str]) -> Repositories:
        """Writes down what the host's git trusts in the trees that tenants write."""
        from sandbox.guards.repositories import Repositories

        repositories = Repositories(home(), list(trees), self._reports.tell_undone)
        self._repositories.append(repositories)
        self.notices += _about_others(repositories)
        return repositories

    def serve(self, config: Config, directory: str) -> ProviderRules:
        """The rules for a host directory that a VFS provider serves."""
        from sandbox.guards.provider_rules import ProviderRules
        from sandbox.guards.repositories import Repositories

        repositories = Repositories(home(), [os.path.realpath(directory)], self._reports.tell_undone)
        served = ProviderRules(config, directory, repositories)
        self._served.append(served)
        return served

    # -- while they stand; `pid` is a process in the sandbox's mount namespace

    def check(self, pid: int, views: Views, search: Search, missed: int) -> None:
        """Makes sure that what is blocked now is covered, whatever moved meanwhile. Raises WallError."""
        self._pid, self._views, self._search = pid, views, search
        rules = search.filesystem
        judged = not rules.show_host or rules.blocked_patterns or rules.deny_read  # else nothing there is hidden
        if missed or (judged and search.changed()):
            from sandbox.guards.recheck import settle

            settle(search, self._cover, missed)
        self._note_named(search)
        self._note_frozen(search)

    def _note_named(self, search: Search) -> None:
        """Writes down the files that settings of programs on the host name. Most projects have no such settings."""
        settings = [path for path in search.found.frozen if "/.git/" not in path]
        if settings and self._repositories:  # else tenants write nowhere
            from sandbox.guards.named_programs import NamedPrograms

            self._named = NamedPrograms(settings, search.roots)

    def _note_frozen(self, search: Search) -> None:
        """Writes down what is frozen, to notice when somebody on the host replaces it."""
        if search.found.frozen and self._repositories:  # else tenants write nowhere
            from sandbox.guards.frozen_files import FrozenFiles

            self._frozen = FrozenFiles(search.found.frozen, self._repositories[0].roots)

    def watch(self, notice: Callable[[str], object], tenants: Callable[[], Tenants]) -> None:
        """Covers what appears from now on. Calls `notice` with messages for the person."""
        self._notice = notice
        if self._search is not None and self._search.looker is not None:
            from sandbox.guards.watch_later import WatchLater

            told = self._reports.tell_covered
            writable = self._repositories[0] if self._repositories else None
            parts = (self._pid, self._search.looker, told, notice, writable, self.lifted, self._frozen)
            self._watching = WatchLater(partial(_late_masks, tenants, *parts, self._stand_by))

    def _stand_by(self) -> None:
        """Sees to it that what tenants leave is undone even if we are killed. Short runs do without."""
        if self._repositories and self._standing is None:
            from sandbox.guards.standby import Standing

            try:
                self._standing = Standing(home(), self._record_directory, self._pid)
            except OSError as problem:
                self._notice(
                    Message(
                        "if this process is killed, what git on the host would run of what the sandbox leaves stays "
                        "until the next run here: no process can be started that undoes it ({problem})",
                        problem=problem.strerror,
                    )
                )

    def catch_up(self, patience: float) -> bool:
        """Waits until what has appeared by now is covered, at most about `patience` seconds. Returns whether it is."""
        return self._watching is None or self._watching.catch_up(patience)

    def hide_secrets(self, config: Config) -> None:
        """Hides the files that secrets are read from. Raises WallError."""
        from sandbox.guards.scan import secret_files

        scanner = self._search.looker if self._search is not None else None
        if scanner is None or not secret_files(config).items() - scanner.secrets.items():
            return
        scanner.secrets.update(secret_files(config))
        for path, problem in self._cover(scanner.look().found.masks):
            if problem:
                from sandbox.guards.recheck import not_hidden

                raise not_hidden(path, problem)

    def cover_new(self, path: str) -> None:
        """Hides a host file that is about to get a secret and to replace a blocked file. Raises OSError.

        Does nothing if there are no walls, or if tenants do not see the file."""
        if self._views is None or not self._views.inside(path):
            return
        for _, problem in self._cover([path]):
            if problem:
                raise OSError(problem)

    def _cover(self, paths: Iterable[str]) -> list[tuple[str, str | None]]:
        from sandbox.guards.mount_in_namespace import cover

        assert self._views is not None
        namespace = os.open(f"/proc/{self._pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return list(cover(namespace, sorted({one for path in paths for one in self._views.inside(path)})))
        finally:
            os.close(namespace)

    # -- the end

    def stop_watching(self) -> None:
        """Before the walls come down. Idempotent."""
        if self._watching is not None:
            self._watching.close()

    def wait_until_watching(self, timeout: float | None = None) -> bool:
        """Waits until new files are noticed; for tests."""
        return self._watching is not None and self._watching.wait(timeout)

    def finish(self) -> None:
        """Undoes and reports what tenants left behind. Call it when no tenant is left. Idempotent.

        If one part fails, the others are done all the same; then the first failure is raised."""
        failures: list[Exception] = []
        if self._repositories:
            from sandbox.policy.protected import protected_patterns

            patterns = (self._protected or protected_patterns)()
            for repositories in self._repositories:
                _attempt(failures, partial(repositories.finish, patterns))
                self._follow(repositories.moved)
        for served in self._served:
            _attempt(failures, served.finish)
        made = list(self.made)
        if self._reserved is not None:
            made += _attempt(failures, self._reserved.appeared) or []
            _attempt(failures, self._reserved.remove)
        for one in (*self._repositories, *(served.repositories for served in self._served)):
            made += one.made
        if self._programs is not None:
            made += _attempt(failures, self._programs.appeared) or []
        if self._frozen is not None:
            settings = {path for one in self._repositories for path in one.settings}  # checked one by one
            made += [path for path in _attempt(failures, self._frozen.replaced) or [] if path not in settings]
        if self._named is not None:
            made += _attempt(failures, self._named.changed) or []
        self._repositories, self._served, self._reserved = [], [], None
        self._programs, self._named, self._frozen = None, None, None
        self.made = list(dict.fromkeys(made))
        for path in self.made:
            self._reports.tell_made(path)
        if self._standing is not None:
            _attempt(failures, self._standing.close)
        if self._reports.unrecorded is not None:
            failures.append(self._reports.unrecorded)
        if failures:
            raise failures[0]

    def _follow(self, moved: Mapping[str, str]) -> None:
        """Looks for the rest of what was made where it is now, and tells the person what that meant."""
        for old, new in moved.items():
            if self._reserved is not None:
                self._reserved.follow(old, new)
            if self._frozen is not None:
                self._frozen.follow(old, new)
            self._notice(
                Message(
                    "{old} was renamed to {new} while the sandbox ran: blocked files that appeared since then were not "
                    "hidden from it",
                    old=old,
                    new=new,
                )
            )


def _attempt(failures: list[Exception], part: Callable[[], T]) -> T | None:
    try:
        return part()
    except Exception as problem:  # noqa: BLE001 - raised when the other parts are done
        failures.append(problem)
        return None


def _about_others(repositories: Repositories) -> list[Message]:
    """What the person should know about other sandboxes in the same places."""
    found = [
        Message(
            "an earlier sandbox in {path} was killed: until now, git on the host may have run what it left "
            "(what was found is listed at the end)",
            path=path,
        )
        for path in repositories.killed
    ]
    for root, since in repositories.shared if os.path.exists(f"{home()}/named") else ():
        from sandbox.config.named_file import noted_after

        for path in noted_after(since, root):
            found.append(
                Message(
                    "{path} can be changed by a sandbox that has been running in {root} since before a run was told to "
                    "read it",
                    path=path,
                    root=root,
                )
            )
    return found


def _nothing(notice: str) -> None:
    """Before anybody listens."""


def _late_masks(tenants: Callable[[], Tenants], *parts: Any) -> LateMasks:
    from sandbox.guards.late_masks import LateMasks

    return LateMasks(tenants(), *parts)
