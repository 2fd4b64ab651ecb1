"""The `sandbox` command, and `run_with_config` for your own command with a built-in policy."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from sandbox.config.model import Config


def run_with_config(config: Config | Mapping[str, Any], argv: Sequence[str] | None = None) -> int:
    """Runs `argv` ("run", "python", "script.py"; by default the process's own) under `config`; returns the exit status.

    The user of the command cannot loosen `config`: there are no options, and no config file is read.
    """
    from sandbox.cli.config_fd import run_fixed

    return run_fixed(config, argv)
