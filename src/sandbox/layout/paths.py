"""Which paths of the host a configuration names: the project, and the further paths that tenants read or write."""

from __future__ import annotations

import os

from sandbox.config.paths import is_beneath
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.config.model import Filesystem
    from sandbox.plan.plan import Plan

# A project here would be the machine itself.
NO_PROJECT = (
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/var",
    "/var/tmp",
)
KERNEL = ("/dev", "/proc", "/sys")


def project_root(filesystem: Filesystem) -> str:
    """The project's real path. Raises ConfigError when it is not a directory, or is the machine itself."""
    asked = os.path.expanduser(filesystem.root)
    root = os.path.realpath(asked)
    if not os.path.isdir(root):
        raise ConfigError("{asked!r} is not a directory", asked=asked, path="filesystem.root")
    if root in ("/tmp", "/var/tmp"):
        raise ConfigError(
            "every sandbox has its own {root}; choose a directory in it", root=root, path="filesystem.root"
        )
    if root in NO_PROJECT or any(root.startswith(f"{one}/") for one in KERNEL):
        raise ConfigError(
            "{root!r} contains the system; choose the project's own directory", root=root, path="filesystem.root"
        )
    return root


def writable_trees(filesystem: Filesystem, shown: Sequence[tuple[str, str, bool]] = ()) -> list[str]:
    """The host's directories that tenants write into; `shown` are those that mounts add. Raises ConfigError."""
    root = project_root(filesystem)
    trees = [] if filesystem.read_only or filesystem.overlay else [root]
    for asked in filesystem.allow_write:
        trees.append(os.path.realpath(os.path.join(root, os.path.expanduser(asked))))
    trees += [os.path.realpath(source) for source, _, writable in shown if writable]
    return [one for one in dict.fromkeys(trees) if os.path.isdir(one)]


def further_paths(plan: Plan, filesystem: Filesystem) -> list[str]:
    """The further paths; returns them as tenants see them. Raises ConfigError for one that cannot be shown."""
    shown: list[str] = []
    for key, paths, writable in (
        ("allow_read", filesystem.allow_read, False),
        ("allow_write", filesystem.allow_write, True),
    ):
        for asked in paths:
            path = os.path.abspath(os.path.join(plan.directory, os.path.expanduser(asked)))
            if not os.path.exists(path):
                raise ConfigError("{asked!r} does not exist", asked=asked, path=f"filesystem.{key}")
            real = os.path.realpath(path)
            if (
                (writable and real in NO_PROJECT)
                or is_beneath(real, "/proc")
                or (writable and is_beneath(real, "/sys"))
            ):
                raise ConfigError("{real!r} contains the system", real=real, path=f"filesystem.{key}")
            plan.show(real, real, writable)
            if real != path and not any(is_beneath(path, bind.target) for bind in plan.binds):
                plan.links.append((path, real))
            shown.append(real)
    return shown


def refuse_our_own(sources: list[str], own: list[str]) -> None:
    """Config, record and registry are never a tenant's. Raises ConfigError. (What merely holds them, masks cover.)"""
    for source in sources:
        if any(is_beneath(source, place) for place in own):
            raise ConfigError(
                "{source!r} contains the sandbox's own config, record or registry", source=source, path="filesystem"
            )
