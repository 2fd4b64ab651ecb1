"""`sandbox panic`: ends every sandbox at once, and lets none start until it is released."""

from __future__ import annotations

import os

from sandbox.config.home import home
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--reason", default="", metavar="TEXT", help=_("why, for the record"))
    parser.add_argument("--release", action="store_true", help=_("let sandboxes start again"))
    parser.add_argument(
        "--status", action="store_true", help=_("only report whether it is in effect (exit status 1: it is)")
    )


def run(arguments: Namespace) -> int:
    from sandbox.registry.kill_switch import state
    from sandbox.service import pull_kill_switch, release_kill_switch

    by = f"sandbox panic, user {os.getuid()}"
    if arguments.status:
        told = state(home())
        if told is None:
            print(_("the kill switch is not pulled"))
            return 0
        print(_("pulled by {by}: {reason}").format(**_words(told)))
        return 1
    if arguments.release:
        print(_("released") if release_kill_switch(by=by) else _("the kill switch is not pulled"))
        return 0
    ended = pull_kill_switch(by=by, reason=arguments.reason)
    print(_("{count} sandboxes ended; none starts until `sandbox panic --release`").format(count=len(ended)))
    return 0


def _words(told: dict[str, object]) -> dict[str, str]:
    from sandbox.cli.output import shown

    return {name: shown(str(told.get(name, "?"))) or "-" for name in ("by", "reason")}
