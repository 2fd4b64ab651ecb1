"""No module imports itself, however far around: neither when it is loaded nor inside a function.

Types' names may come from above (`if TYPE_CHECKING:`): nothing is loaded for them.
"""

from __future__ import annotations

import grimp


def cycles(graph: grimp.ImportGraph) -> set[frozenset[str]]:
    """The sets of modules that can all be reached from each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for other in sorted(graph.find_modules_directly_imported_by(module)):
            if other not in index:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            at = stack.index(module)
            component = frozenset(stack[at:])
            del stack[at:]
            if len(component) > 1:
                found.add(component)

    for module in sorted(graph.modules):
        if module not in index:
            visit(module)
    return found


def test_the_import_graph_has_no_cycle() -> None:
    graph = grimp.build_graph("sandbox", exclude_type_checking_imports=True, cache_dir=None)
    assert cycles(graph) == set()


def test_the_network_has_no_cycle_through_types_either() -> None:
    found = cycles(grimp.build_graph("sandbox", cache_dir=None))
    assert [one for one in found if all(module.startswith("sandbox.network.") for module in one)] == []


def test_a_cycle_would_be_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")):
        graph.add_import(importer=importer, imported=imported)
    assert cycles(graph) == {frozenset({"a", "b", "c"})}
