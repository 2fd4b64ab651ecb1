"""Tripwires: covers that report who touched them, over blocked files of the project and over the well-known places for
secrets in the home directory.

A tripwire is a FUSE mount that the guest serves (`guest/tripwire.c`) from the first command on, so it needs a FUSE
device that this user may open. Without one, every cover is a plain mask, and attempts are refused without a report.
Access to allowed files is not affected. What appears later is covered by `late_masks.py`, without a report.
"""

from __future__ import annotations

import os

from sandbox.errors import ConfigError
from sandbox.plan.mount_operations import Cover, MakeReadOnly, Unmount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sandbox.plan.mount_operations import Operation
    from sandbox.plan.plan import Plan


FUSE = "/dev/fuse"
DEVICE = "/.tripwire"  # where the guest finds it; removed before any tenant exists
MOST = 64  # each is a FUSE connection, and costs the start about 50 µs
KEYS_MOST = 16

# Only these names appear inside, and only if the host has them. In directories that programs inside want to use
# themselves (`ssh` its known_hosts, `gpg` its public keys), only the secret part is covered.
SECRET_PLACES = (
    ".aws", ".azure", ".kube", ".config/gcloud", ".gnupg/private-keys-v1.d", ".docker/config.json", ".netrc", ".npmrc",
    ".pypirc", ".git-credentials", ".config/gh/hosts.yml", ".password-store",
)  # fmt: skip
KEYS = ".ssh"  # and in it `id_*`, except public keys


def arm(plan: Plan, besides: Collection[str] = ()) -> None:
    """Turns the plan's covers into tripwires, at most MOST of them, if this machine can. `besides`: paths at which
    tenants get a file of their own."""
    home = plan.environment.get("HOME", "") if not plan.whole_host else ""  # there, only denied paths are covered
    covers = [one for one in plan.covers if isinstance(one, Cover) and one.rule]
    present = [name for name in (*SECRET_PLACES, *_keys(home)) if os.path.exists(f"{home}/{name}")] if home else []
    present = [name for name in present if f"{home}/{name}" not in besides]
    if not (covers or present) or not os.access(FUSE, os.R_OK | os.W_OK):
        return
    in_way = _in_the_way(plan)
    new = [
        Cover(path, os.path.isdir(path), rule=f"~{path[len(home) :]}", make=True, optional=False)
        for path in _hidden(plan, home, present, in_way)
    ]
    # Nothing answers a tripwire while the sandbox is being built: mounting something below one would hang.
    covers = [one for one in covers if one.path not in in_way]
    for one in [*new, *covers[: MOST - len(new)]]:
        one.device = DEVICE
    plan.show(FUSE, DEVICE, True, device=True)
    plan.served += [*new, Unmount(DEVICE)]


def _in_the_way(plan: Plan) -> set[str]:
    """Every path at which something is mounted, and all its parents."""
    paths = [path for path, _ in (*plan.scratch, *plan.links)]
    paths += [*(bind.target for bind in plan.binds), *plan.writable]
    found = set(paths)
    for one in _mounted(plan):
        paths.append(one.path)
        if not isinstance(one, Cover):
            found.add(one.path)
    for path in paths:
        while (path := os.path.dirname(path)) not in found:
            found.add(path)
    return found


def _mounted(plan: Plan) -> Iterator[Operation]:
    yield from plan.layers
    yield from plan.covers
    yield from plan.served
    yield MakeReadOnly("/")
    yield from plan.after_seal


def _hidden(plan: Plan, home: str, names: list[str], in_way: set[str]) -> Iterator[str]:
    """Well-known places for secrets that the home inside does not have."""
    shown = [*(bind.target for bind in plan.binds), *(path for path, _ in (*plan.links, *plan.scratch) if path != home)]
    shown += [one.path for one in _mounted(plan)]
    shown = [path for path in shown if f"{path}/".startswith(f"{home}/")]
    for path in (f"{home}/{name}" for name in names):
        if path not in in_way and not any(f"{path}/".startswith(f"{one}/") for one in shown):
            yield path


def _keys(home: str) -> list[str]:
    try:
        names = os.listdir(f"{home}/{KEYS}")
    except OSError:
        return []
    private = sorted(name for name in names if name.startswith("id_") and not name.endswith(".pub"))
    return [f"{KEYS}/{name}" for name in private[:KEYS_MOST]]


def require_tripwires() -> None:
    """For `filesystem.ask`. Raises ConfigError if this machine cannot have tripwires."""
    try:
        os.close(os.open(FUSE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as problem:
        raise ConfigError(
            "needs tripwires: {device} cannot be opened here ({reason}); ask about hosts alone, or give this user "
            "access to it",
            device=FUSE,
            reason=problem.strerror,
            path="filesystem.ask",
        ) from problem


def require_armed(plan: Plan, mounted: int) -> None:
    """The same once the walls are built, because the kernel may have refused the mounts. Raises ConfigError."""
    if not mounted and any(isinstance(one, Cover) and one.device for one in (*plan.covers, *plan.served)):
        raise ConfigError("needs tripwires, and this kernel does not let the sandbox mount one", path="filesystem.ask")
