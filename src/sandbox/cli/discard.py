"""`sandbox discard`: discards a sandbox's changes."""

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
        raise SandboxError("{id} is running; stop it first: `sandbox kill {id}`", id=entry.id)
    workspace.discard()
    return 0
