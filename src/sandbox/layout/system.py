"""What stands at `/` around the project: the programs and libraries that tenants run.

Today the host's own system, read-only. The root of an image is another implementation of the same interface.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from sandbox.layout.etc import etc
from sandbox.layout.toolchains import toolchain_roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.plan.plan import Plan

# The whole of the system that programs run from. A link (merged /usr) stays a link.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")


class System(ABC):
    """A system to run programs from."""

    @abstractmethod
    def show(self, plan: Plan, home: str) -> None:
        """Adds the system's directories and its `/etc` to the plan. `home` is the tenant's home directory."""

    @abstractmethod
    def programs(self, home: str, project: str) -> list[str]:
        """Further directories of the host that the programs on the tenant's PATH need."""


class HostSystem(System):
    """The host's `/usr` and its like, with an `/etc` written here."""

    def show(self, plan: Plan, home: str) -> None:
        for path in SYSTEM:
            if os.path.islink(path):
                plan.links.append((path, os.readlink(path)))
            elif os.path.isdir(path):
                plan.show(path, path, False)
        etc(plan, home)

    def programs(self, home: str, project: str) -> list[str]:
        return list(toolchain_roots(os.environ.get("PATH", ""), home, project))
