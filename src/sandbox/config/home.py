"""Where a user's own things are kept: config, record, registry. Never visible inside a sandbox."""

from __future__ import annotations

import os

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config


def home() -> str:
    """`SANDBOX_HOME`, or `~/.sandbox`; absolute. It need not exist. Raises SandboxError when there is no home."""
    named = os.environ.get("SANDBOX_HOME")
    place = os.path.abspath(named) if named else os.path.expanduser("~/.sandbox")
    if not place.startswith("/"):
        # Relative to the current directory it would be the project's, and what is there counts as the user's own.
        raise SandboxError("HOME is not an absolute path and this user has no home directory; set SANDBOX_HOME")
    return place


def user_config_file() -> str:
    """The user's own config file, which alone may loosen what is built in."""
    return os.path.join(home(), "config.yaml")


def record_directory(config: Config) -> str:
    """Where the record is written."""
    return os.path.expanduser(config.audit.directory or os.path.join(home(), "audit"))


def authority_directory() -> str:
    """Where the authority is kept that sandboxes trust. `SANDBOX_AUTHORITY` moves it, for several homes of one user."""
    return os.environ.get("SANDBOX_AUTHORITY") or os.path.join(home(), "authority")
