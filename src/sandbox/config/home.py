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


def unwritable(problem: OSError) -> SandboxError:
    """The error for a home in which nothing can be written."""
    return SandboxError(
        "cannot write {home}: {reason}; set SANDBOX_HOME to a directory you can write to",
        home=home(),
        reason=problem.strerror,
    )


def user_config_file() -> str:
    """The user's own config file. Only this file may loosen the defaults."""
    return os.path.join(home(), "config.yaml")


def record_directory(config: Config) -> str:
    """Where the record is written."""
    return os.path.expanduser(config.audit.directory or os.path.join(home(), "audit"))


def authority_directory() -> str:
    """The directory of the certificate authority that sandboxes trust. `SANDBOX_AUTHORITY` lets homes share one."""
    named = os.environ.get("SANDBOX_AUTHORITY") or os.path.join(home(), "authority")
    return os.path.realpath(named)  # its files are mounted, and no mount goes through a link


def cache_directory() -> str:
    """Where images and templates are kept: `SANDBOX_CACHE_DIR`, or `cache` under the sandbox home; a real path."""
    return os.path.realpath(os.environ.get("SANDBOX_CACHE_DIR") or os.path.join(home(), "cache"))


def own_directories(config: Config) -> list[str]:
    """The real paths of our own directories: config and registry, record, certificate authority, cache.

    With `SANDBOX_HOME`, also `~/.sandbox` if runs without it have created that."""
    usual = os.path.expanduser("~/.sandbox")
    others = [usual] if os.path.isdir(f"{usual}/vms") else []
    if "SANDBOX_CACHE_DIR" in os.environ and os.path.isdir(cache_directory()):
        others.append(cache_directory())
    places = (home(), record_directory(config), authority_directory(), *others)
    return list(dict.fromkeys(os.path.realpath(path) for path in places))
