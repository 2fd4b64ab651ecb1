"""Keeps this program from loading code that tenants wrote.

The owner loads most of its modules when it first needs them. A tenant that could write to them would run its own code
outside the walls, in this run or in the next. Two things prevent that. If the package, or the environment that it is
installed in, is in a directory that tenants write to, it is frozen there. And no other module is loaded from such a
directory: a script in the project has the project at the front of its `sys.path`, and a tenant could make an `ssl.py`
there.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import PathFinder

from sandbox.config.paths import is_beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NAME = __name__.partition(".")[0]
_BUILT_IN = frozenset(sys.builtin_module_names)


def places() -> list[str]:
    """The directories that contain our own code: the package, where it is installed, its environment, and the Python
    that this was made from."""
    found = [_PACKAGE, sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    above = os.path.dirname(_PACKAGE)
    if above.endswith("-packages"):
        found.append(above)
    return list(dict.fromkeys(real for one in found for real in (one, os.path.realpath(one))))


def written(trees: Sequence[str]) -> list[str]:
    """Those of `places` that are in one of `trees`, without those that are inside another of them."""
    found: list[str] = []
    for place in sorted(places(), key=len):
        if any(is_beneath(place, tree) for tree in trees) and not any(is_beneath(place, one) for one in found):
            found.append(place)
    return found


def import_nothing_from(trees: Sequence[str]) -> None:
    """From now on, neither our code nor what it imports loads a module from `trees`, and nobody loads a module of the
    standard library from there. What is frozen there is an exception. The person's own program imports its own modules
    as before."""
    ours = [tree for tree in trees if any(is_beneath(_real(one), tree) for one in sys.path)]
    _trees.update(dict.fromkeys(ours))
    if ours and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder:
    """Finds modules that must not come from a tenant, only where no tenant writes."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name in _BUILT_IN or not (name in sys.stdlib_module_names or _is_ours(sys._getframe(1))):
            return None
        spec = PathFinder.find_spec(name, [one for one in sys.path if not _is_written(_real(one))], target)
        if spec is None and PathFinder.find_spec(name, None, target) is not None:  # it is only where tenants write
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec


_finder = _Finder()
_trees: dict[str, None] = {}


def _real(entry: str) -> str:
    return os.path.realpath(entry or ".")


def _is_written(place: str) -> bool:
    if any(is_beneath(place, one) for one in places()):
        return False
    return any(is_beneath(place, tree) for tree in _trees)


def _is_ours(frame: FrameType | None) -> bool:
    """Whether the import comes from our code, or from a module that is being loaded for it."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name.partition(".")[0] == _NAME:
            return True
        loading = frame.f_code.co_name == "<module>" or frame.f_code.co_filename.startswith("<frozen importlib")
        if not (loading or name == "importlib"):
            return False
        frame = frame.f_back
    return False
