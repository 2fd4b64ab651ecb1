"""The arguments of `docker run` or `podman run`. The same plan gives the same arguments: tests/engines/golden."""

from __future__ import annotations

from sandbox.plan import HOSTNAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.engines.container.info import Info
    from sandbox.plan.plan import Plan

SHELF = "/.sandbox"  # guest/container.c: where the guest finds its control socket
STAGE = "/.host"  # where the guest, and only the guest, sees the host's files while it sets up
FUSE = "c 10:229 rwm"  # /dev/fuse, in the kernel's list of devices that a container may open

# What the guest needs for the set-up; it drops all of these before any tenant exists. As in bubblewrap.py.
CAPABILITIES = ("SYS_ADMIN", "NET_ADMIN", "NET_BIND_SERVICE", "SETFCAP", "DAC_OVERRIDE")
BECOME = ("SETUID", "SETGID")  # also needed where the engine runs as root and the owner is another user


def run_arguments(
    plan: Plan,
    info: Info,
    *,
    shelf: str,
    image: str,
    labels: Mapping[str, str],
    ulimits: Mapping[str, tuple[int, int]],
    runtime: str | None,
) -> list[str]:
    """`shelf` is the host's directory with the control socket, the guest and the filter. `ulimits`: soft and hard."""
    capabilities = CAPABILITIES if info.owner_is_root else (*CAPABILITIES, *BECOME)
    return [
        *("run", "--detach", "--rm", "--pull", "never", "--name", plan.container_name, "--hostname", HOSTNAME),
        *(word for name, value in labels.items() for word in ("--label", f"{name}={value}")),
        *((f"--runtime={runtime}",) if runtime else ()),
        # The guest makes every address local to this network, and passes its listening sockets to the gate.
        *("--network", "none", "--ipc", "private", "--cgroupns", "private", "--userns", "host", "--user", "0:0"),
        # /proc/sys is read-only in a container; the gate's network needs these two.
        *("--sysctl", "net.ipv6.conf.all.disable_ipv6=0", "--sysctl", "net.ipv4.ip_unprivileged_port_start=0"),
        *("--cap-drop", "ALL"),
        *(word for one in capabilities for word in ("--cap-add", one)),
        *("--security-opt", "no-new-privileges", "--security-opt", f"seccomp={shelf}/seccomp.json"),
        # AppArmor's profile for containers forbids mounts, SELinux' the host's files. Ours: docs/containers.md.
        *(("--security-opt", "apparmor=unconfined") if "apparmor" in info.security else ()),
        *(("--security-opt", "label=disable") if "selinux" in info.security else ()),
        *_limits(plan, info),
        *(word for name, (soft, hard) in ulimits.items() for word in ("--ulimit", f"{name}={soft}:{hard}")),
        *("--log-driver", "none"),
        *(("--device-cgroup-rule", FUSE) if _needs_fuse(plan) and not info.rootless else ()),
        *_bind(shelf, SHELF),
        # The whole file system: the guest then looks at each path once, through no link. It is removed before any
        # tenant exists.
        *_bind("/", STAGE),
        *("--workdir", "/", "--entrypoint", f"{SHELF}/guest", image, "--container"),
    ]


def _bind(source: str, target: str) -> tuple[str, str]:
    return "--mount", f"type=bind,source={source},target={target}"


def _limits(plan: Plan, info: Info) -> list[str]:
    words: list[str] = []
    if plan.limits.memory is not None:
        # Without the second the limit would only push tenants into swap.
        words += ["--memory", str(plan.limits.memory), "--memory-swap", str(plan.limits.memory)]
    if plan.limits.cpus is not None:
        words += ["--cpus", f"{plan.limits.cpus:g}"]
    if "pids" in info.controllers:
        words += ["--pids-limit", str(-1 if plan.pids is None else plan.pids + 1)]  # the guest is one of them
    return words


def _needs_fuse(plan: Plan) -> bool:
    return any(bind.device for bind in plan.binds)
