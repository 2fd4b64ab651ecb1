"""Where a user's own things are kept: config, record, registry. Never visible inside a sandbox."""

from __future__ import annotations

import os


def home() -> str:
    """`SANDBOX_HOME`, or `~/.sandbox`; absolute. It need not exist."""
    return os.path.abspath(os.environ.get("SANDBOX_HOME") or os.path.expanduser("~/.sandbox"))


def user_config_file() -> str:
    """The user's own config file, which alone may loosen what is built in."""
    return os.path.join(home(), "config.yaml")
