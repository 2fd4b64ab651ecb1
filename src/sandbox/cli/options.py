"""A command's options as one table, read in two ways: quickly, and by argparse.

`parse` reads a correct command line without argparse, whose import takes longer than building the sandbox. It leaves
what it does not understand (a mistake, `--help`, a rare spelling) to argparse, which has the same options from
`add_to` and prints the help and the errors. The tests check that both give the same result.
"""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence
    from typing import Any


class Option:
    """One option. `value` names its value in the help; without one it is a switch. `many`: it may be repeated."""

    __slots__ = ("name", "help", "value", "short", "number", "many", "default")

    def __init__(
        self,
        name: str,
        help: str,
        *,
        value: str = "",
        short: str = "",
        number: bool = False,
        many: bool = False,
        default: object = None,
    ) -> None:
        self.name = name
        self.help = help
        self.value = value
        self.short = short
        self.number = number
        self.many = many
        self.default = default

    @property
    def attribute(self) -> str:
        """Its name among the parsed arguments."""
        return self.name.lstrip("-").replace("-", "_")


class Arguments:
    """Parsed arguments as attributes, as in `argparse.Namespace`."""

    command: list[str]

    def __getattr__(self, name: str) -> Any:  # for the type checker: every option is set when parsed
        raise AttributeError(name)


def add_to(parser: ArgumentParser, options: Sequence[Option]) -> None:
    """Adds the options and the command to argparse's parser."""
    for one in options:
        names = [one.name, one.short] if one.short else [one.name]
        if not one.value:
            parser.add_argument(*names, action="store_true", default=one.default, help=_(one.help))
        else:
            parser.add_argument(
                *names,
                metavar=one.value,
                type=int if one.number else str,
                action="append" if one.many else "store",
                default=[] if one.many else one.default,
                help=_(one.help),
            )
    # REMAINDER: what follows the command's first word belongs to the command, options included.
    parser.add_argument("command", nargs="...", metavar="command", help=_("the command and its arguments"))


def leading(words: Sequence[str], options: Sequence[Option]) -> int:
    """How many words at the beginning are long options of the table, with their values."""
    known = {one.name: one for one in options}
    at = 0
    while at < len(words):
        name, equals, _value = words[at].partition("=")
        option = known.get(name)
        if option is None:
            break
        at += 1 if equals or not option.value else 2
    return min(at, len(words))


def parse(words: Sequence[str], options: Sequence[Option]) -> Arguments | None:
    """The arguments, or None if argparse has to look at them. `command` is what follows the options, with `--`."""
    known = {name: one for one in options for name in (one.name, one.short) if name}
    found = Arguments()
    for one in options:
        setattr(found, one.attribute, [] if one.many else one.default)
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        name, equals, value = rest.pop(0).partition("=")
        option = known.get(name)
        if option is None or (equals and not (option.value and name.startswith("--"))):
            return None
        if not option.value:
            setattr(found, option.attribute, True)
            continue
        if not equals:
            if not rest or rest[0].startswith("-"):
                return None
            value = rest.pop(0)
        if option.number and not (value.isascii() and value.isdigit()):
            return None
        given = int(value) if option.number else value
        setattr(found, option.attribute, [*getattr(found, option.attribute), given] if option.many else given)
    found.command = rest
    return found
