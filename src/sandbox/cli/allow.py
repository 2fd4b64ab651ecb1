"""`sandbox allow N`: allows what a sandbox asks for."""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox allow [--once | --always] N"
    parser.add_argument("number", metavar="N", type=int, help=_("the question's number, as in `sandbox asks`"))
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help=_("only this connection, request or open file"))
    how.add_argument("--always", action="store_true", help=_("also in later sandboxes: add it to your config file"))


def run(arguments: Namespace) -> int:
    from sandbox.cli.asks import answer

    word = "once" if arguments.once else "always" if arguments.always else "sandbox"
    return answer(arguments.number, word, "sandbox allow")
