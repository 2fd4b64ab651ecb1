"""`sandbox doctor`: checks what this machine supports, what is missing and how to get it."""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.engines.base import Finding


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    from sandbox.config.model import Config
    from sandbox.engines.choose import choose

    findings = choose(Config()).findings()
    good = all(one.ok for one in findings if one.needed)
    if arguments.json:
        import json

        print(json.dumps([{name: getattr(one, name) for name in one.__slots__} for one in findings], indent=2))
    else:
        for one in findings:
            print(_line(one))
        print()
        print(_("This machine can run sandboxes.") if good else _("This machine cannot run sandboxes."))
    return 0 if good else 1


def _line(one: Finding) -> str:
    if one.ok:
        return f"  ok       {_.text(one.name)}: {_.text(one.detail)}"
    word = "MISSING " if one.needed else "without "
    return (
        f"  {word} {_.text(one.name)}"
        + (f": {_.text(one.detail)}" if one.detail else "")
        + f"\n           {_.text(one.remedy)}"
    )
