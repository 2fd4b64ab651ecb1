"""Directories of the home that outlive the sandbox (`state` in the configuration), where tenants look for them."""

from __future__ import annotations

from sandbox.errors import ConfigError
from sandbox.plan.mount_operations import Bind, Unmount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.layout.layout import Layout

STAGE = "/.state"  # removed before any tenant exists


def keep(made: Layout, kept: Sequence[tuple[str, str]], home: str, home_is_project: bool) -> None:
    """Adds them to the plan: directories, never single files, because programs save by renaming onto the old file.

    They are not views of the host's trees: nothing there is hidden or frozen. Raises ConfigError if the whole home is
    to be kept and is also the project.
    """
    plan = made.plan
    for number, (source, target) in enumerate(kept):
        if target == home:
            if home_is_project:
                raise ConfigError(
                    "the home directory is the project and cannot be kept as well; use `--root DIR`", path="state.keep"
                )
            plan.scratch = [(path, mode) for path, mode in plan.scratch if path != home]
        if made.hidden:
            # Something is mounted over the home after the binds, so this has to come later still.
            stage = f"{STAGE}-{number}"
            plan.show(source, stage, True)
            plan.covers += (Bind(target, stage, make=True), Unmount(stage))
        else:
            plan.show(source, target, True)
