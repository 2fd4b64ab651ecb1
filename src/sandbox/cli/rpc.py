"""`sandbox --rpc`: serves JSON-RPC on stdin and stdout. See docs/rpc.md."""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.prog = "sandbox --rpc"
    option = parser.add_argument
    option("--config", metavar="FILE", help=_("read this configuration file"))
    option("--image", help=_("what is at /: host, minimal, a directory, a name or a reference"))
    option("--allow-host", metavar="HOST", action="append", default=[], help=_("allow connections to this host"))


def run(arguments: Namespace) -> int:
    from sandbox.cli.run import tell_ignored
    from sandbox.rpc.server import serve
    from sandbox.sandboxes import Sandboxes

    return serve(Sandboxes(config_file=arguments.config, flags=_flags(arguments), tell=tell_ignored))


def _flags(arguments: Namespace) -> dict[str, object]:
    said: dict[str, object] = {}
    if arguments.image:
        said["image"] = arguments.image
    if arguments.allow_host:
        said["network"] = {"allowed_hosts": arguments.allow_host}
    return said
