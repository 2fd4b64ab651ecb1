"""A command with a built-in policy: `run_with_config` in Python, and `sandbox --config-fd N` for other languages."""

from __future__ import annotations

import os
import sys

from sandbox.cli.standard_streams import fill_standard_streams
from sandbox.errors import ConfigError, SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence
    from typing import Any

    from sandbox.config.model import Config

_LIMIT = 2**24  # bytes of a configuration


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox --config-fd N run command…"
    parser.add_argument("fd", type=int, help=_("file descriptor to read the JSON configuration from"))
    parser.add_argument("words", nargs="...", metavar="run command", help=_("the command and its arguments"))


def run(arguments: Namespace) -> int:
    """A descriptor, because a configuration with secrets must not be in arguments, the environment or a file."""
    import json

    try:
        os.fstat(arguments.fd)
    except OSError:
        raise SandboxError("descriptor {number} is not open", number=arguments.fd) from None
    with open(arguments.fd, "rb") as file:
        text = file.read(_LIMIT)
    fill_standard_streams()  # if it was stdin, the command would get the next file opened as its own
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ConfigError("is not valid JSON: {problem}", problem=problem, file=f"descriptor {arguments.fd}") from None
    return run_fixed(config, arguments.words)


def run_fixed(config: Config | Mapping[str, Any], argv: Sequence[str] | None) -> int:
    """See `sandbox.cli.run_with_config`."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words[2:] if words[1:2] == ["--"] else words[1:]
    if words[:1] != ["run"] or not command:
        raise SandboxError("usage: run command…")
    from sandbox.cli.foreground import foreground
    from sandbox.cli.run_summary import Refusals, tell
    from sandbox.sandbox import Sandbox

    with Sandbox(config, command=command) as sandbox:
        refusals = Refusals(sandbox)
        result = foreground(sandbox, command)
    return tell(sandbox, result, refusals)
