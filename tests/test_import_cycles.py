"""No module imports itself, however far around: neither when it is loaded nor inside a function.

Types' names may come from above (`if TYPE_CHECKING:`): nothing is loaded for them.
"""

from __future__ import annotations

from collections.abc import Iterator

import grimp

import sandbox
import sandbox.config.model  # its sections name modules
from sandbox import vfs
from sandbox.cli.command_table import COMMANDS
from sandbox.config.section import Section
from sandbox.wiring import Wiring


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


def by_name() -> Iterator[tuple[str, str]]:
    """The imports that no `import` statement shows: who imports, and what."""
    yield from (("sandbox", home) for home in sandbox._HOMES.values())
    yield from (("sandbox", module) for module in Wiring.soon)
    yield from (("sandbox.vfs", f"sandbox.vfs.{home}") for home in vfs._HOMES.values())
    for importer in ("sandbox.cli.main", "sandbox.cli.completion"):
        imported = (f"sandbox.cli.{module}" for module, _ in COMMANDS.values())
        yield from ((importer, module) for module in imported if module != importer)
    sections = [Section]
    for section in sections:
        sections += section.__subclasses__()
        named = [one.parse for one in section.fields.values() if isinstance(one.parse, str)]
        yield from (("sandbox.config.section", f"sandbox.config.{one.partition('.')[0]}") for one in named)


def test_the_import_graph_has_no_cycle_through_names_either() -> None:
    graph = grimp.build_graph("sandbox", exclude_type_checking_imports=True, cache_dir=None)
    named = {(importer, module) for importer, module in by_name() if module in graph.modules}
    assert len(named) > 60
    for importer, module in named:
        graph.add_import(importer=importer, imported=module)
    assert cycles(graph) == set()


def test_the_network_has_no_cycle_through_types_either() -> None:
    found = cycles(grimp.build_graph("sandbox", cache_dir=None))
    assert [one for one in found if all(module.startswith("sandbox.network.") for module in one)] == []


def test_a_cycle_would_be_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")):
        graph.add_import(importer=importer, imported=imported)
    assert cycles(graph) == {frozenset({"a", "b", "c"})}
