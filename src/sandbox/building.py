"""Building one sandbox: the part of `Sandbox` that decides what is built, before the walls stand.

Each part, once it exists, adds to `_endings` what closes it. Functions import the modules they need themselves: the
launcher works meanwhile.
"""

from __future__ import annotations

import os
import sys

from sandbox.config.home import home
from sandbox.config.model import Config
from sandbox.config.paths import search_path
from sandbox.engines.choose import default_pids
from sandbox.errors import Message
from sandbox.serving import Serving

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.config.from_program import Given
    from sandbox.layout.layout import Layout
    from sandbox.vfs.provider import Provider

SYSTEM_PATHS = (f"{sys.base_prefix}/lib/", f"{sys.base_prefix}/lib64/")


class Building(Serving):
    """What is decided before the walls are built. Only `Sandbox` derives from it."""

    def _arrange(self, directory: str | None) -> None:
        """Decides what is built, and makes what must exist before. `directory` is the tenants' own, if any."""
        from sandbox.layout.paths import writable_trees

        filesystem, can = self.config.filesystem, self._can
        self._freeze_what_is_acted_on()
        self._endings.append(self._guard.finish)
        trees = writable_trees(filesystem)
        self._guard.note_written(trees)  # before a program of the host is looked for
        self._freeze_own_program(trees)
        self._look_at_path(trees)
        self._freeze_what_is_trusted()
        self._logins = self._known_logins()
        if filesystem.branch is not None:
            from sandbox.optional_parts import find_branch

            find_branch(self, filesystem.branch)
        reserved = self._reserve()
        self._mounts = None
        if has_mounts(self.config):
            from sandbox.optional_parts import own_directories

            self._mounts = own_directories(self)
        if can.own_root:
            self._layout = self._walled(reserved)
        else:
            from sandbox.layout.layout import on_host

            self._layout = on_host(self.config, self.id, os.environ, directory)
        self._plan = self._layout.plan
        self._plan.pids = default_pids(self.config)
        if self._origin is not None:
            self._origin.furnish(self._plan)
            self._register().note("origin.json", {"family": self._origin.family})
        self._plan.proxy_token = os.urandom(16).hex() if can.gate == "proxy" else None
        self._furnish()
        self._gate_thread = self._gate()
        self._credentials = self._credential_files()
        self._cover()

    def _reserve(self) -> list[str]:
        """Makes the directories in the project that tenants must not make. Returns their names."""
        from sandbox.layout.paths import project_root

        filesystem = self.config.filesystem
        if self._can.own_root and not (filesystem.read_only or filesystem.overlay or filesystem.show_host):
            return self._guard.reserve(project_root(filesystem), self._layered())
        if filesystem.overlay and self._layered():
            return self._guard.reserve(project_root(filesystem), self._layered(), only_places=True)
        return []

    def _furnish(self) -> None:
        """Adds to the plan the directories that are more than the host's files."""
        if self._mounts is not None:
            from sandbox.optional_parts import layer_of_changes, outside_repository

            self._register()  # the layer is kept in the registry entry
            layer = layer_of_changes(self)
            self._mounts.furnish(self._plan, layer, outside_repository(self, layer))
            self._register().note("mounts.json", self._mounts.ways)
        if self._layout.caches and self._can.overlay:
            from sandbox.layout.caches import KeptCaches

            kept = KeptCaches(home(), self._plan.directory, lambda: self._register().path)
            self._endings.append(kept.close)
            kept.furnish(self._plan, self._layout.caches)
        if self._layered():
            from sandbox.optional_parts import keep_project_state

            keep_project_state(self)

    def _cover(self) -> None:
        """Replaces and covers files of the plan, once all of them are known."""
        from sandbox.guards.tripwire import arm, require_tripwires

        filesystem = self.config.filesystem
        if filesystem.replaced:
            from sandbox.layout.replaced import replace

            replace(self._plan, filesystem, self._layout.views.inside)
        if self.config.network.publish:
            self._register().note("ports.json", {"ports": [dict(port) for port in self.ports]})
        if filesystem.ask:
            require_tripwires()
        if self._can.tripwires:
            arm(self._plan, self._credentials.paths if self._credentials is not None else ())

    def _walled(self, reserved: Sequence[str]) -> Layout:
        """The layout where tenants have a root of their own. `reserved`: names that were made in the project."""
        from sandbox.layout.etc import hold, ignore
        from sandbox.layout.layout import layout
        from sandbox.layout.paths import project_root, writable_trees

        filesystem = self.config.filesystem
        shown, hiding = (self._mounts.shown, self._mounts.hiding) if self._mounts is not None else ((), ())
        trees = writable_trees(filesystem, shown) if shown or filesystem.show_host else []
        if shown:
            self._guard.note_written(trees)
            self._freeze_own_program(trees)
        held: list[str] = []
        if filesystem.show_host:
            held = self._guard.reserve_all(filesystem, project_root(filesystem), trees)
        trees = writable_trees(filesystem, shown, searched=True)
        repositories = self._guard.trust(trees) if trees else None
        kept: Sequence[tuple[str, str]] = ()
        if self.config.state.keep:
            from sandbox.optional_parts import kept_in_home

            kept = kept_in_home(self)
        system = None
        if self.config.image is not None:
            from sandbox.optional_parts import image_system

            system = image_system(self)
        made = layout(self.config, self.id, dict(os.environ), repositories, shown, hiding, system, kept=kept)
        ignore(made.plan, list(dict.fromkeys((*reserved, *self._layered()))))
        if filesystem.show_host:
            hold(made.plan, held)
        return made

    def _freeze_what_is_acted_on(self) -> None:
        """Makes the project read-only where programs on the host act on its files, as they do in `~/.claude`."""
        from sandbox.layout.paths import frozen_project

        place = frozen_project(self.config.filesystem)
        if place is None:
            return
        self.config.filesystem.read_only = True
        self.notices.append(
            Message(
                "programs on this machine act on what is in {place!r}, so the project is read-only; to let the sandbox "
                "change it, use `--overlay` and review the changes, or name it in `filesystem.allow_write`",
                place=place,
            )
        )

    def _freeze_what_is_trusted(self) -> None:
        """Keeps tenants from changing configurations that runs were told to read, authorities that the gate trusts, and
        what the host's signer runs and trusts, whether or not this sandbox signs."""
        from sandbox.guards.scan import signs

        if os.path.exists(f"{home()}/named"):  # most people never name a file
            from sandbox.config.named_file import keep_noted_from_tenants

            keep_noted_from_tenants(self.config)
        filesystem = self.config.filesystem
        if authorities := self.config.network.ca_certificates:
            from sandbox.config.glob_paths import escaped

            real = (os.path.realpath(os.path.expanduser(one)) for one in authorities)
            filesystem.deny_write = [*filesystem.deny_write, *(escaped(one) for one in real if os.path.isfile(one))]
        if signs(self.config):
            from sandbox.guards.signing_files import frozen

            filesystem.deny_write = [*filesystem.deny_write, *frozen(self.config)]

    def _look_at_path(self, trees: Sequence[str]) -> None:
        """Guards programs that the person starts by name: frozen in the home directory, reported elsewhere."""
        tops = tuple(f"{tree.rstrip('/')}/" for tree in trees)
        if not any(f"{one}/".startswith(tops) for one in search_path()):
            return
        from sandbox.guards.path_programs import on_path

        places, filesystem = on_path(trees), self.config.filesystem
        user = os.path.realpath(os.path.expanduser("~"))
        if user in trees:
            # Those in hidden directories (`~/.local/bin`) are read-only anyway.
            plain = [one for one in places if one != user and not one[len(user) + 1 :].startswith(".")]
            filesystem.deny_write = [*filesystem.deny_write, *plain]
        self._guard.note_programs(places)

    def _freeze_own_program(self, trees: Sequence[str]) -> None:
        """Keeps tenants from changing our own code, wherever it is installed. Quick, because every start does it."""
        tops = tuple(f"{tree.rstrip('/')}/" for tree in trees)
        ours = (*sys.path, sys.prefix, sys.base_prefix)  # the last for all that is below it
        paths = [os.path.realpath(one or ".") for one in ours if not f"{one}/".startswith(SYSTEM_PATHS)]
        if not tops or not any(f"{path}/".startswith(tops) for path in (*paths, os.path.realpath(__file__))):
            return
        from sandbox.guards.own_imports import import_nothing_from, written

        import_nothing_from(trees)
        filesystem = self.config.filesystem
        named = [os.path.realpath(os.path.expanduser(one)) for one in filesystem.allow_write]
        for place in written(trees):
            if place in named or place in filesystem.deny_write:
                continue
            filesystem.deny_write = [*filesystem.deny_write, place]
            self.notices.append(
                Message(
                    "sandbox itself is in {place!r}, so that is read-only inside: what changed it would run on this "
                    "machine; to let the sandbox change it, use `--overlay`, or install sandbox elsewhere (pipx)",
                    place=place,
                )
            )


def has_mounts(config: Config) -> bool:
    """Whether there are directories that are more than the host's files; most sandboxes have none."""
    vfs = config.vfs
    return bool(vfs.mounts or vfs.direct_mounts or config.filesystem.overlay)


def take_providers(config: Given) -> tuple[Given, dict[str, Provider]]:
    """Separates the provider objects in a caller's `vfs.mounts` from the plain configuration."""
    if config is None or isinstance(config, Config) or not (config.get("vfs") or {}).get("mounts"):
        return config, {}
    from sandbox.vfs.arrange import take_providers

    return take_providers(config)
