"""argparse for our commands: an error is one line that suggests an option, with our own exit status."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, HelpFormatter

from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn


class Formatter(HelpFormatter):
    """Loads what it needs only when help is shown: argparse makes a formatter for each option, just to check it."""

    def __init__(self, prog: str) -> None:
        # A fixed width: to find the terminal's, argparse would import shutil and with it three compression libraries.
        super().__init__(prog, max_help_position=32, width=100)

    def _set_color(self, color: bool) -> None:
        """From Python 3.14 on: colours, which take eleven milliseconds to import."""
        self._color = color

    def __getattr__(self, name: str) -> Any:
        if name not in ("_theme", "_decolor"):
            raise AttributeError(name)
        super()._set_color(self._color)  # type: ignore[misc]
        return self.__dict__[name]


class UsageError(SandboxError):
    """An invalid command line. Nothing was done."""

    usage = True


class Parser(ArgumentParser):
    """The parser of one command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": Formatter, **options})
        self._given: list[str] = []

    def add_subparsers(self, **options: Any) -> Any:
        # By default argparse would use our usage line as the program's name.
        return super().add_subparsers(**{"prog": self.prog, **options})

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self._given = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raises SandboxError, for the exit status 125: argparse's 2 could be the command's."""
        known = {option.lstrip("-"): option for option in self._option_string_actions}
        for word in self._given[: self._given.index("--") if "--" in self._given else None]:
            name = word.partition("=")[0]
            if name.startswith("--") and name[2:] not in known:
                import difflib

                for near in difflib.get_close_matches(name[2:], known, n=1):
                    raise UsageError("unknown option {name}; did you mean {known}?", name=name, known=known[near])
        # argparse has composed it in the user's language: see `main.parser_of`.
        raise UsageError("{problem}; see `{command} --help`", problem=message, command=self.prog)


def parser_for(name: str, summary: str, module: Any) -> Parser:
    """The parser of the command `name`, to which its module adds its options."""
    # argparse's own messages are translated by us; in English this saves it the search for a catalogue.
    argparse._ = _  # type: ignore[attr-defined]
    parser = Parser(prog=f"sandbox {name}", description=_(summary))
    module.add(parser)
    return parser
