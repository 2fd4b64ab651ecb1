"""argparse for our commands: a mistake is one line that says which option was meant, and a status that is ours."""

from __future__ import annotations

from argparse import ArgumentParser, HelpFormatter

from sandbox.errors import SandboxError
from sandbox.words import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn


def formatter(prog: str) -> HelpFormatter:
    """A width of our own: argparse would import shutil, and with it three compression libraries, to ask for it."""
    return HelpFormatter(prog, max_help_position=32, width=100)


class Parser(ArgumentParser):
    """The parser of one command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": formatter, **options})
        self._given: list[str] = []

    def add_subparsers(self, **options: Any) -> Any:
        # By default argparse makes their name from our usage, which is a whole sentence.
        return super().add_subparsers(**{"prog": self.prog, **options})

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self._given = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raises SandboxError: the exit status is ours, 125, where argparse's 2 could be the command's."""
        for word in self._given[: self._given.index("--") if "--" in self._given else None]:
            name = word.partition("=")[0]
            if name.startswith("--") and name not in self._option_string_actions:
                import difflib

                for near in difflib.get_close_matches(name, self._option_string_actions, n=1):
                    raise SandboxError(f"there is no option {name}; did you mean {near}?")
        raise SandboxError(message + _("; `{command} --help` tells more").format(command=self.prog))
