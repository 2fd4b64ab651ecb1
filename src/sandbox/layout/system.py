"""What is at `/` around the project: the programs and libraries that tenants use.

Here, the host's own system, read-only. The root of an image (`image_system.py`) is another implementation.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from sandbox.config.paths import is_beneath
from sandbox.layout.etc import etc
from sandbox.layout.toolchains import installation_of, toolchain_roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.plan.plan import Plan
    from sandbox.policy.environment import EnvFilter

# The whole of the system that programs run from. A link (merged /usr) stays a link.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")

LIBRARIES = "/etc/ld.so.cache"  # which libraries there are: every program opens it


class System(ABC):
    """A system to run programs from."""

    @abstractmethod
    def show(self, plan: Plan, home: str) -> None:
        """Adds the system's directories and its `/etc` to the plan. `home` is the tenant's home directory."""

    @abstractmethod
    def programs(self, home: str, project: str) -> list[str]:
        """Further directories of the host that the programs on the tenant's PATH need."""

    @abstractmethod
    def installed(self, programs: Sequence[str], home: str, project: str) -> list[str]:
        """The directories of the host that these programs, named by their paths, need."""

    def writable(self) -> list[str]:
        """Directories of the system that tenants can change."""
        return []

    def tenant(self, asked: str) -> tuple[str, int, int] | None:
        """Who tenants are inside (name, user, group), if the system decides that; `asked` is the setting `user`."""
        return None

    def environment(self, variables: EnvFilter, given: Mapping[str, str]) -> dict[str, str]:
        """The tenants' variables. `given` are the host's; `variables` says which of them may pass."""
        return variables.filter(given)

    def path(self, environment: Mapping[str, str], visible: Sequence[str]) -> str:
        """PATH, reduced to the directories that exist inside. `visible`: what the plan shows."""
        tops = tuple(f"{place.rstrip('/')}/" for place in visible)
        around = {os.path.dirname(place) for place in visible}
        listed = environment.get("PATH", os.defpath).split(":")
        found = [one for one in listed if one in around or f"{one}/".startswith(tops)]
        return ":".join(found) or "/usr/local/bin:/usr/bin:/bin"


class HostSystem(System):
    """The host's `/usr` and similar directories, with an `/etc` written here."""

    def show(self, plan: Plan, home: str) -> None:
        for path in SYSTEM:
            if os.path.islink(path):
                plan.links.append((path, os.readlink(path)))
            elif os.path.isdir(path):
                plan.show(path, path, False)
        etc(plan, home)

    def installed(self, programs: Sequence[str], home: str, project: str) -> list[str]:
        seen = (*(path for path in SYSTEM if os.path.isdir(path)), project)
        roots = (root for program in programs for root in installation_of(program, home))
        return [root for root in dict.fromkeys(roots) if not any(is_beneath(root, one) for one in seen)]

    def programs(self, home: str, project: str) -> list[str]:
        return list(toolchain_roots(os.environ.get("PATH", ""), home, project))
