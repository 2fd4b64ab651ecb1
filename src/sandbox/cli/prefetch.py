"""`sandbox prefetch`: downloads an image now, for later or for a machine without a network."""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--variant", default="standard", help=_("minimal, standard or full (default: standard)"))
    parser.add_argument("--arch", help=_("amd64 or arm64 (default: this machine's)"))
    parser.add_argument("--config", metavar="FILE", help=_("read this configuration file"))


def run(arguments: Namespace) -> int:
    from sandbox.images.prefetch import prefetch
    from sandbox.service import configuration

    config = configuration({}, config_file=arguments.config).config
    print(prefetch(arguments.variant, config, architecture=arguments.arch))
    return 0
