"""`sandbox discard`: throws a sandbox's changes away."""

from __future__ import annotations

from sandbox.cli.diff import add_id, find
from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    add_id(parser)


def run(arguments: Namespace) -> int:
    entry, workspace = find(arguments.id)
    if entry.running:
        raise SandboxError(f"{entry.id} is running; `sandbox kill {entry.id}` first")
    workspace.discard()
    return 0
