"""What this machine can do for the walls, found by trying, and what to do about what it cannot."""

from __future__ import annotations

import os

from sandbox.engines.base import Finding
from sandbox.errors import Message, message_of

USERNS_SWITCHES = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
)
_ISOLATION = Message("isolation")
_BUILT, _BUILT_AS_ROOT = Message("a sandbox was built"), Message("a sandbox was built, as root")
APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def why_no_namespaces() -> str:
    """The likely cause and its remedy, in words."""
    if (_read("/proc/1/comm") or "").strip() == "guest":
        return Message("This is already a sandbox, and sandboxes cannot be nested: run the command directly.")
    for path, off, remedy in USERNS_SWITCHES:
        if _read(path) == off:
            return Message("User namespaces are disabled; run `{command}` as root.", command=remedy)
    if _read(APPARMOR) == "1":
        return Message(
            "AppArmor lets only known programs make user namespaces, as on Ubuntu 24.04. Update the `bubblewrap` and "
            "`apparmor-profiles` packages so that bwrap has a profile, or run "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` as root."
        )
    if not os.path.exists("/proc/self/ns/user"):
        return Message("This kernel was built without user namespaces (CONFIG_USER_NS).")
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return Message(
            "This container's seccomp profile forbids new namespaces: start the container with "
            "`--security-opt seccomp=unconfined --security-opt apparmor=unconfined`, or with `--privileged`."
        )
    return Message("Something forbids new namespaces here: a seccomp profile, SELinux, or a container's settings.")


def bubblewrap_findings() -> list[Finding]:
    """Everything the bubblewrap engine leans on, tried out."""
    from sandbox.engines.bubblewrap import MISSING, find_bwrap

    bwrap = find_bwrap()
    if bwrap is None:
        return [Finding("bubblewrap", False, "not installed", MISSING)]
    found = [Finding("bubblewrap", True, _version(bwrap))]
    found += _tried()
    found += _limits()
    found.append(_fuse())
    return found


def _tried() -> list[Finding]:
    """A real sandbox, and what its guest says the kernel offered."""
    import tempfile

    from sandbox.config.model import Config
    from sandbox.engines.bubblewrap import Bubblewrap
    from sandbox.errors import EngineUnavailable, SandboxError
    from sandbox.layout.layout import layout

    with tempfile.TemporaryDirectory() as empty:
        try:
            config = Config.read({"filesystem": {"root": empty}})
            running = Bubblewrap().start().build(layout(config, "doctor", {}).plan)
        except EngineUnavailable as problem:
            return [Finding(_ISOLATION, False, message_of(problem))]  # it says what to do
        except SandboxError as problem:
            return [
                Finding(_ISOLATION, False, message_of(problem), "please report this line and the output of `uname -r`")
            ]
        have = running.have
        running.close()
    return [
        Finding(_ISOLATION, True, _BUILT_AS_ROOT if os.geteuid() == 0 else _BUILT),
        Finding(
            "network capture",
            have.get("nft") is True,
            "nftables tproxy in the sandbox's own network",
            "load the kernel modules nf_tables and nft_tproxy; without them, only connections to ports 80, 443 and "
            "those named in rules are recorded (all others are refused without a record)",
            needed=False,
        ),
        Finding(
            "Landlock",
            bool(have.get("landlock")),
            Message("ABI {version}", version=have.get("landlock")),
            "a second layer of write protection; needs Linux 5.13 or later with landlock in the `lsm=` list",
            needed=False,
        ),
    ]


def _limits() -> list[Finding]:
    from sandbox.config.model import Limits
    from sandbox.engines import cgroup
    from sandbox.errors import LimitUnavailable

    found = []
    for name, limits in (
        ("memory", Limits(memory=2**28)),
        ("cpus", Limits(cpus=1.0)),
        ("pids", Limits(pids=64)),
    ):
        try:
            group = cgroup.hold(limits, limits.pids, "doctor")
        except LimitUnavailable as problem:
            found.append(
                Finding(
                    Message("limit on {name}", name=name),
                    False,
                    "cannot be enforced",
                    message_of(problem),
                    needed=False,
                )
            )
            continue
        how = Message("control group")
        if group is None:
            how = Message("RLIMIT_NPROC, per sandbox") if name == "pids" else Message("RLIMIT_AS, per process")
        else:
            group.remove()
        found.append(Finding(Message("limit on {name}", name=name), True, how))
    return found


def _fuse() -> Finding:
    usable = os.access("/dev/fuse", os.R_OK | os.W_OK)
    detail = Message("/dev/fuse can be opened; attempts to open blocked files are recorded") if usable else ""
    remedy = Message(
        "run `modprobe fuse` and `chmod 0666 /dev/fuse` as root; without FUSE, kernel-backed mounts work, and attempts "
        "to open blocked files are refused but not recorded"
    )
    return Finding("programmable files", usable, detail, remedy, needed=False)


def _version(bwrap: str) -> str:
    import subprocess

    said = subprocess.run([bwrap, "--version"], capture_output=True, text=True, check=False).stdout
    return f"{said.strip()} at {bwrap}"


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
