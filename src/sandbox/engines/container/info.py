"""What a container engine says about itself: whether it answers, is on this machine, and which limits it enforces."""

from __future__ import annotations

import os
import sys

from sandbox.engines.container.cli import CommandFailed, printable
from sandbox.errors import EngineUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sandbox.engines.container.cli import Cli

CONTROLLERS = ("memory", "cpu", "pids")


class Info:
    """An engine that answered."""

    __slots__ = ("version", "rootless", "local", "where", "controllers", "cgroup_version", "security", "runtimes")

    def __init__(
        self,
        *,
        version: str,
        rootless: bool,
        local: bool,
        where: str,
        controllers: frozenset[str],
        cgroup_version: int,
        security: frozenset[str] = frozenset(),
        runtimes: frozenset[str] = frozenset(),
    ) -> None:
        self.version = version
        self.rootless = rootless  # root in its containers is the user who runs it, not the machine's root
        self.local = local  # it runs on this kernel and sees this machine's files
        self.where = where  # for a message, when it is not
        self.controllers = controllers  # the control group controllers that it can limit containers with
        self.cgroup_version = cgroup_version
        self.security = security  # other confinement that it applies to containers: apparmor, selinux
        self.runtimes = runtimes

    @property
    def owner_is_root(self) -> bool:
        """Whether a container's root acts as our own user on the host."""
        return self.rootless or os.geteuid() == 0


def ask(cli: Cli) -> Info:
    """Asks the engine. Raises EngineUnavailable when it does not answer."""
    try:
        told = cli.json("info", "--format", "{{json .}}")
    except CommandFailed as problem:
        raise EngineUnavailable(
            "{name} is installed but does not answer ({said}). {remedy}",
            name=cli.name,
            said=problem.said,
            remedy=_remedy(cli.name),
        ) from None
    if not isinstance(told, dict):
        raise EngineUnavailable("{name} prints nothing about itself (`{name} info`)", name=cli.name)
    return _podman(told) if "host" in told else _docker(told, cli.name)


def _docker(told: Mapping[str, Any], name: str) -> Info:
    errors = told.get("ServerErrors")
    if errors or not told.get("ServerVersion"):
        raise EngineUnavailable(
            "{name} is installed but does not answer ({said}). {remedy}",
            name=name,
            said=printable(" ".join(map(str, errors or ()))[:500]) or "no server",
            remedy=_remedy(name),
        )
    options = {part.partition("=")[2] for one in told.get("SecurityOptions") or () for part in str(one).split(",")}
    system = str(told.get("OperatingSystem", ""))
    controllers = {
        controller
        for controller, key in zip(CONTROLLERS, ("MemoryLimit", "CpuCfsQuota", "PidsLimit"), strict=True)
        if told.get(key) is True
    }
    return Info(
        version=printable(str(told["ServerVersion"])),
        rootless="rootless" in options,
        local=_same_kernel(told.get("KernelVersion"), told.get("OSType")) and "Desktop" not in system,
        where=printable(system),
        controllers=frozenset(controllers),
        cgroup_version=2 if str(told.get("CgroupVersion")) == "2" else 1,
        security=frozenset(options & {"apparmor", "selinux"}),
        runtimes=frozenset(told.get("Runtimes") or ()),
    )


def _podman(told: Mapping[str, Any]) -> Info:
    host, version = told.get("host") or {}, told.get("version") or {}
    security = host.get("security") or {}
    rootless, v2 = security.get("rootless") is True, host.get("cgroupVersion") == "v2"
    # On version 1, rootless Podman drops limits with a warning at best; as root it lists no controllers but has all.
    controllers = set(host.get("cgroupControllers") or ()) if v2 or rootless else set(CONTROLLERS)
    if rootless and not v2:
        controllers = set()
    return Info(
        version=printable(str(version.get("Version", ""))),
        rootless=rootless,
        local=_same_kernel(host.get("kernel"), host.get("os")) and host.get("serviceIsRemote") is not True,
        where=printable(str(host.get("hostname", ""))),
        controllers=frozenset(controllers & set(CONTROLLERS)),
        cgroup_version=2 if v2 else 1,
        security=frozenset(
            name for name, key in (("apparmor", "apparmorEnabled"), ("selinux", "selinuxEnabled")) if security.get(key)
        ),
    )


def _same_kernel(release: object, system: object) -> bool:
    return sys.platform == "linux" and system == "linux" and release == os.uname().release


def _remedy(name: str) -> str:
    from sandbox.errors import Message

    if name == "docker":
        return Message(
            "Start its daemon (`systemctl start docker`); your user must be allowed to use its socket (group `docker`)"
        )
    return Message(
        "run `podman info` for details; as an ordinary user, Podman needs `uidmap` and entries in /etc/subuid and "
        "/etc/subgid"
    )
