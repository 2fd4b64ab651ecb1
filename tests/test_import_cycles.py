"""No module imports itself through others, not even in a function or for types only."""

from __future__ import annotations

import grimp
import pytest

#: The packages that are free of cycles.
PACKAGES = ("sandbox.network",)


def cycles(package: str) -> list[list[str]]:
    """Every group of modules under `package` that import one another, in a circle."""
    graph = grimp.build_graph("sandbox", cache_dir=None)
    imports = {
        module: {
            one
            for one in graph.find_modules_directly_imported_by(module)
            if one == package or one.startswith(f"{package}.")
        }
        for module in sorted(graph.modules)
        if module == package or module.startswith(f"{package}.")
    }
    # What imports nothing that is left is in no cycle, and neither is what nobody left imports.
    while True:
        imported = set().union(*imports.values())
        free = {module for module, wanted in imports.items() if not wanted or module not in imported}
        if not free:
            break
        imports = {module: wanted - free for module, wanted in imports.items() if module not in free}
    return [[module, *sorted(wanted)] for module, wanted in imports.items()]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_through_others(package: str) -> None:
    assert cycles(package) == []
