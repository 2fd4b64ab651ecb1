"""What this machine can do for the walls, found by trying, and what to do about what it cannot."""

from __future__ import annotations

import os

from sandbox.engines.base import Finding

USERNS_SWITCHES = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
)
APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def why_no_namespaces() -> str:
    """The likely cause and its remedy, in words."""
    if (_read("/proc/1/comm") or "").strip() == "guest":
        return "This is a sandbox already, and none fits into another: run the command as it is."
    for path, off, remedy in USERNS_SWITCHES:
        if _read(path) == off:
            return f"This kernel has user namespaces switched off: as root run `{remedy}`."
    if _read(APPARMOR) == "1":
        return (
            "AppArmor lets only known programs make user namespaces (Ubuntu 24.04 does). Update the `bubblewrap` and "
            "`apparmor-profiles` packages so that bwrap has its profile, or as root run "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
        )
    if not os.path.exists("/proc/self/ns/user"):
        return "This kernel was built without user namespaces (CONFIG_USER_NS)."
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return (
            "This is a container whose seccomp profile forbids new namespaces: start it with "
            "`--security-opt seccomp=unconfined --security-opt apparmor=unconfined`, or with `--privileged`."
        )
    return "Something forbids new namespaces here: a seccomp profile, SELinux, or a container's settings."


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
            return [Finding("walls", False, str(problem))]  # it says what to do
        except SandboxError as problem:
            return [Finding("walls", False, str(problem), "please report this line and `uname -r`: it should work")]
        have = running.have
        running.close()
    return [
        Finding("walls", True, "a sandbox was built, as root" if os.geteuid() == 0 else "a sandbox was built"),
        Finding(
            "every connection caught",
            have.get("nft") is True,
            "nftables tproxy in the sandbox's own network",
            "load the kernel modules nf_tables and nft_tproxy; until then only ports 80, 443 and those rules name are "
            "caught (nothing else leaves either: it is refused without a record)",
            needed=False,
        ),
        Finding(
            "Landlock",
            bool(have.get("landlock")),
            f"ABI {have.get('landlock')}",
            "a second wall for writes; needs Linux 5.13 or later with landlock in the `lsm=` list",
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
            found.append(Finding(f"limit on {name}", False, "cannot be held", str(problem), needed=False))
            continue
        how = "control group"
        if group is None:
            how = "RLIMIT_NPROC, per sandbox" if name == "pids" else "RLIMIT_AS, per process"
        else:
            group.remove()
        found.append(Finding(f"limit on {name}", True, how))
    return found


def _fuse() -> Finding:
    usable = os.access("/dev/fuse", os.R_OK | os.W_OK)
    detail = "/dev/fuse can be opened; attempts on blocked files are recorded, too" if usable else ""
    remedy = (
        "`modprobe fuse`, and as root `chmod 0666 /dev/fuse`; without it kernel-backed mounts work, and attempts on "
        "blocked files are refused but not recorded"
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
