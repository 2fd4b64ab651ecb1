"""`sandbox doctor`: checks what this machine supports, what is missing and how to get it."""

from __future__ import annotations

from sandbox.engines.base import Finding
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    from sandbox.config.model import Config
    from sandbox.engines.auto import asked, names, preferred
    from sandbox.engines.choose import choose

    chosen = choose(Config())
    findings = [*chosen.findings(), *_machines()]
    good = all(one.ok for one in findings if one.needed)
    others = (asked(name) for name in names() if name != chosen.name)
    findings += [Finding(one.name, one.works, one.why if one.works else "", one.why, needed=False) for one in others]
    if arguments.json:
        import json

        print(json.dumps([{name: getattr(one, name) for name in one.__slots__} for one in findings], indent=2))
    else:
        for one in findings:
            print(_line(one))
        print()
        print(_("`engine: auto` takes {name}.").format(name=chosen.name))
        if not good and (other := preferred()) is not None:
            print(_("`engine: {name}` works here: {why}.").format(name=other.name, why=_.text(other.why)))
        print(_("This machine can run sandboxes.") if good else _("This machine cannot run sandboxes."))
    return 0 if good else 1


def _machines() -> list[Finding]:
    """What this machine has for virtual machines."""
    import sys

    if sys.platform != "linux":
        return []
    from sandbox.engines.firecracker.engine import finding
    from sandbox.engines.qemu.engine import findings

    return [*findings(), finding()]


def _line(one: Finding) -> str:
    if one.ok:
        return f"  ok       {_.text(one.name)}: {_.text(one.detail)}"
    word = "MISSING " if one.needed else "without "
    return (
        f"  {word} {_.text(one.name)}"
        + (f": {_.text(one.detail)}" if one.detail else "")
        + f"\n           {_.text(one.remedy)}"
    )
