"""`sandbox doctor` for an engine with walls: tries everything it needs, and says how to get what is missing."""

from __future__ import annotations

import os

from sandbox.engines.base import Finding
from sandbox.errors import Message, message_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sandbox.engines.apple.engine import AppleStart
    from sandbox.engines.container.engine import ContainerStart
    from sandbox.engines.local import LocalStart
    from sandbox.plan.plan import Plan

_ISOLATION = Message("isolation")
_BUILT, _BUILT_AS_ROOT = Message("a sandbox was built"), Message("a sandbox was built, as root")


def findings(name: str, launcher: str, start: Callable[[], LocalStart]) -> list[Finding]:
    """Tries everything that an engine needs or can use.

    `launcher` is the program that builds its walls, and `start` its `start`.
    """
    return [
        Finding(name, True, _version(launcher)),
        *build_one(start),
        *_limits(),
        _fuse(),
    ]


def build_one(start: Callable[[], LocalStart | ContainerStart]) -> list[Finding]:
    """Builds a real sandbox, and asks its guest what the kernel offers."""
    import tempfile

    from sandbox.config.model import Config
    from sandbox.layout.layout import layout

    with tempfile.TemporaryDirectory() as empty:
        config = Config.read({"filesystem": {"root": empty}})
        identity = f"doctor-{os.urandom(4).hex()}"  # two may look at the same time
        return build_plan(start, lambda: layout(config, identity, {}).plan)


def build_plan(
    start: Callable[[], LocalStart | ContainerStart | AppleStart], plan: Callable[[], Plan]
) -> list[Finding]:
    """As `build_one`, for a plan of the engine's own."""
    from sandbox.errors import EngineUnavailable, SandboxError

    try:
        running = start().build(plan())
    except EngineUnavailable as problem:
        return [Finding(_ISOLATION, False, message_of(problem))]  # the message says what to do
    except SandboxError as problem:
        from sandbox.engines import nesting

        if nesting.in_container() and (found := nesting.reasons()):  # the guest hit it, not the launcher
            return [Finding(_ISOLATION, False, message_of(problem), one) for one in found]
        return [Finding(_ISOLATION, False, message_of(problem), "please report this line and the output of `uname -r`")]
    except OSError as problem:
        return [Finding(_ISOLATION, False, str(problem))]
    have = running.have
    running.close()
    return _offered(have)


def _offered(have: Mapping[str, Any]) -> list[Finding]:
    """Findings from what the guest found in the kernel."""
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
            group = cgroup.hold(limits, limits.pids, f"doctor-{os.urandom(4).hex()}")
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
    from sandbox.engines.nesting import in_container

    usable = os.access("/dev/fuse", os.R_OK | os.W_OK)
    detail = Message("/dev/fuse can be opened; attempts to open blocked files are recorded") if usable else ""
    remedy = Message(
        "run `modprobe fuse` and `chmod 0666 /dev/fuse` as root; without FUSE, kernel-backed mounts work, and attempts "
        "to open blocked files are refused but not recorded"
    )
    if in_container():
        remedy = Message(
            "/dev/fuse is not in this container, or not for this user: start it with `--device /dev/fuse`; in "
            "Kubernetes a device plugin gives it (docs/kubernetes.md). Without FUSE, kernel-backed mounts work, and "
            "attempts to open blocked files are refused but not recorded"
        )
    return Finding("programmable files", usable, detail, remedy, needed=False)


def _version(bwrap: str) -> str:
    import subprocess

    said = subprocess.run([bwrap, "--version"], capture_output=True, text=True, check=False).stdout
    return f"{said.strip()} at {bwrap}"
