"""Where the user's config, record and registry are. Never visible inside a sandbox."""

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
        # A relative path would be in the project, whose files would then count as the user's own.
        raise SandboxError("HOME is not an absolute path and this user has no home directory; set SANDBOX_HOME")
    return place


def user_config_file() -> str:
    """The user's own config file. Only this file may loosen the defaults."""
    return os.path.join(home(), "config.yaml")


def record_directory(config: Config) -> str:
    """Where the record is written."""
    return os.path.expanduser(config.audit.directory or os.path.join(home(), "audit"))


def authority_directory() -> str:
    """Where the certificate authority is that sandboxes trust. `SANDBOX_AUTHORITY` lets several homes share one."""
    named = os.environ.get("SANDBOX_AUTHORITY") or os.path.join(home(), "authority")
    return os.path.realpath(named)  # its files are mounted, and no mount goes through a link


def own_directories(config: Config) -> list[str]:
    """The real paths of all that is the sandbox's own: config and registry, record, certificate authority; where
    `SANDBOX_HOME` names another place, also `~/.sandbox`, if other runs have made it."""
    usual = os.path.expanduser("~/.sandbox")
    others = [usual] if os.path.isdir(f"{usual}/vms") else []
    places = (home(), record_directory(config), authority_directory(), *others)
    return list(dict.fromkeys(os.path.realpath(path) for path in places))
