"""Hides and freezes parts of what is shown: blocked files, protected files, a person's dot entries, and what /proc
reveals about the host."""

from __future__ import annotations

import os
import stat

from sandbox.config.home import home as sandbox_home
from sandbox.config.paths import is_beneath
from sandbox.errors import Message
from sandbox.guards import dot_entries
from sandbox.guards.scan import Scanner, secret_files
from sandbox.guards.search import SOCKET, denied, is_socket
from sandbox.plan.mount_operations import Bind, Cover, Tmpfs, Unmount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.config.model import Config, Filesystem, Network
    from sandbox.guards.repositories import Repositories
    from sandbox.layout.layout import Layout
    from sandbox.layout.system import System
    from sandbox.plan.plan import Plan

# (The guest makes read-only what uid 0 could change through /proc even without a capability.)
PROC_HIDDEN = (
    "acpi",
    "asound",
    "cmdline",  # the kernel's: boot loaders and clouds put tokens there
    "interrupts",
    "iomem",
    "ioports",
    "kcore",
    "key-users",
    "keys",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "pagetypeinfo",
    "sched_debug",
    "scsi",
    "slabinfo",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
)
SOCKET_STAGE = "/.sandbox-socket"
HOME_HIDDEN = Message(
    "your home directory is the project: entries that begin with a dot are hidden (make some readable with "
    "`filesystem.allow_read`), the sandbox can change everything else; to show less, use `--root DIR`"
)
TOO_MANY = Message("there are too many blocked files to remember: one that is moved may be readable in a later run")


def hide_dot_entries(made: Layout, filesystem: Filesystem, home: str, visible: Sequence[str], system: System) -> None:
    """Hides the dot entries of the home directory when it is in the project."""
    plan = made.plan
    directories: list[str] = []
    files: list[str] = []
    linked: list[str] = []
    programs = system.programs(home, os.devnull) if filesystem.toolchains and (home in visible or made.hidden) else []
    if home in visible:
        directories, files = dot_entries.hidden_in_home(home, visible)
        linked = dot_entries.hidden_behind_links(home, [*visible, *programs])
        linked = [one for one in linked if one not in files and not any(is_beneath(one, top) for top in directories)]
    elif made.hidden and filesystem.overlay:
        directories = [home]  # the overlay is mounted over the sandbox's own home
    if not (directories or files or linked):
        return
    made.hidden = [*directories, *files]
    # By the search: a tenant can move what a link leads to, and an empty directory in its place would look like a loss.
    made.linked = dict.fromkeys(linked, "a dot entry of the home directory, by a link")
    if home in visible:
        made.notices.append(HOME_HIDDEN)
    ours = os.path.realpath(sandbox_home())
    kept = [
        one
        for one in dict.fromkeys((*programs, *visible))
        if any(is_beneath(one, top) for top in directories) and not is_beneath(one, ours)
    ]
    plan.covers += (Tmpfs(path, 0o700, plan.scratch_size, optional=True) for path in directories)
    _show_again(plan, kept)
    rule = "a dot file of the home directory"
    plan.covers += (Cover(shown, False, rule=rule) for one in files for shown in made.views.inside(one))


def _show_again(plan: Plan, kept: Sequence[str]) -> None:
    """Shows paths again on the empty directories that hide what is around them."""
    writable = [bind.target for bind in plan.binds if bind.writable]
    for number, one in enumerate(kept):
        stage = f"{dot_entries.STAGE}-{number}"
        plan.show(one, stage, one in writable)
        plan.covers += (Bind(one, stage, read_only=one not in writable, make=True), Unmount(stage))


def hide_and_freeze(made: Layout, config: Config, own: list[str], repositories: Repositories | None) -> None:
    """Covers blocked files, and makes read-only what programs on the host would run.

    Outer paths come first, so that of two nested mounts the inner one is visible. What has gone since needs no cover:
    if something changed meanwhile, `recheck` searches again before any tenant runs.
    """
    filesystem, inside, covers = config.filesystem, made.views.inside, made.plan.covers
    made.search = Scanner(filesystem, made.views, own, {**made.linked, **secret_files(config)}, made.hidden).look()
    found = made.search.found
    if not made.search.kept:
        made.notices.append(TOO_MANY)
    if found.heads or found.git_files or repositories is not None:
        from sandbox.guards.freezing import freeze_repositories

        keep = not filesystem.allow_git_config
        freeze_repositories(found, made.views.roots, repositories, dict(found.frozen), keep_settings=keep)
    if filesystem.allow_git_config:
        found.frozen = {one: None for one in found.frozen if not one.endswith("/.git/config")}
    # A mount point cannot be renamed: nobody can move `.git` aside and create another.
    covers += (Bind(one, one, optional=True) for host in sorted(found.pinned) for one in inside(host))
    covers += (Bind(one, one, read_only=True, optional=True) for host in sorted(found.frozen) for one in inside(host))
    # Where tenants cannot make Unix sockets, or may use all, the host's need no cover.
    if "*" in config.network.unix_sockets or (filesystem.show_host and not config.network.unix_sockets):
        found.masks = {path: mask for path, mask in found.masks.items() if mask.rule != SOCKET}
    for host, mask in sorted(found.masks.items()):
        for name in inside(host):
            # An overlay may have inode numbers of its own.
            inode: int | None = mask.inode if name == host and not filesystem.overlay else 0
            if filesystem.show_host and mask.rule == SOCKET:
                inode = None  # it may go meanwhile
            covers.append(Cover(name, mask.is_dir, rule=mask.rule, inode=inode))
    # (With `show_host`, what is denied elsewhere is covered already.)
    places = [bind.target for bind in made.plan.binds if not inside(bind.target)] if not filesystem.show_host else []
    places += (path for _, path in made.caches)
    elsewhere = denied(filesystem, places, made.views.roots)
    covers += (Cover(mask.path, mask.is_dir, rule=mask.rule) for mask in elsewhere)
    made.masked = len(found.masks) + len(elsewhere)


def show_sockets(plan: Plan, network: Network) -> None:
    """Shows the host sockets that the configuration names, if they exist, above everything that hides them."""
    for number, asked in enumerate(network.unix_sockets):
        path = os.path.realpath(os.path.join(plan.directory, os.path.expanduser(asked)))
        if asked != "*" and is_socket(path):
            stage = f"{SOCKET_STAGE}-{number}"
            plan.show(path, stage, False)
            plan.covers += (Bind(path, stage, read_only=True, make=True), Unmount(stage))


def hide_proc(plan: Plan) -> None:
    """Hides what /proc reveals about the host."""
    for path in (f"/proc/{name}" for name in PROC_HIDDEN):
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue  # this kernel has no such file
        plan.covers.append(Cover(path, stat.S_ISDIR(mode)))
