"""Which machine to ask Ray for first. It is a wish: where it has no room, Ray takes another one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sandbox.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PLACEMENTS = ("spread", "pack")
MACHINES = ("qemu", "microvm", "firecracker")  # engines that start from a saved template


def checked(placement: str | None) -> str | None:
    """Raises InvalidArgument."""
    if placement is not None and placement not in PLACEMENTS:
        raise InvalidArgument("placement is {known}, not {given!r}", known=" or ".join(PLACEMENTS), given=placement)
    return placement


def near(config: Mapping[str, Any]) -> list[str]:
    """What a sandbox of this configuration would rather find on its machine, the most useful first."""
    image, engine = config.get("image"), config.get("engine")
    name = image.get("name") if isinstance(image, dict) else image
    wanted = [f"template:{engine}:{name or ''}"] if engine in MACHINES else []
    return [*wanted, f"image:{name}"] if isinstance(name, str) and name else wanted


def preferred(
    free: Mapping[str, Mapping[str, float]],
    wanted: Mapping[str, float],
    placement: str | None,
    useful: Collection[str] = (),
    cached: Mapping[str, Collection[str]] | None = None,
) -> str:
    """The machine to ask for; "" leaves it to Ray. `free` has what each has left, `cached` what each has of `useful`.

    "pack" is the machine with the least room that has enough, "spread" the one with the most.
    """
    fitting = {
        node: left
        for node, left in free.items()
        if all(left.get(name, 0.0) >= amount for name, amount in wanted.items())
    }
    for one in useful:
        having = {node: left for node, left in fitting.items() if one in (cached or {}).get(node, ())}
        if having:
            fitting, placement = having, placement or "spread"
            break
    if placement is None or not fitting:
        return ""
    order = sorted(fitting, key=lambda node: (fitting[node].get("CPU", 0.0), fitting[node].get("memory", 0.0), node))
    return order[0] if placement == "pack" else order[-1]


def cached_here(engines: Collection[str]) -> list[str]:
    """What this machine has: the names of the images in its store. `engines` are the templates that are known."""
    from sandbox.images.store import directory

    try:
        names = os.listdir(os.path.join(directory(), "names"))
    except OSError:
        names = []
    images = (one.replace("%2F", "/").replace("%25", "%") for one in names if not one.startswith("."))
    return sorted({*(f"image:{one}" for one in images), *engines})
