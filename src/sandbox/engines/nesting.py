"""What a container's settings let a program build inside it, tried step by step.

The kernel says only that an operation is not permitted. Which setting forbids it follows from the step that failed and
from what the container shows of its own settings. Nothing remains: a child process does every step in new namespaces.
"""

from __future__ import annotations

import errno
import os

from sandbox.errors import Message

MARKS = ("/.dockerenv", "/run/.containerenv")
STEPS = ("user", "map", "namespaces", "hostname", "mount", "proc")  # each needs the ones before it
PATIENCE = 20  # seconds

# Run by `python -I -c` in a separate process, because a process cannot leave namespaces. Prints "step errno" lines.
_TRY = r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(step, done):
    number = 0 if done == 0 else ctypes.get_errno()
    print(step, number, flush=True)
    if number:
        raise SystemExit
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
uid, gid = os.geteuid(), os.getegid()
call("user", libc.unshare(0x10000000))
try:
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"0 {uid} 1")
    write("/proc/self/gid_map", f"0 {gid} 1")
except OSError as problem:
    print("map", problem.errno)
    raise SystemExit
print("map 0")
call("namespaces", libc.unshare(0x6c020000))
call("hostname", libc.sethostname(b"try", 3))
libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
call("mount", libc.mount(b"none", b"/", None, 0x44000, None) or libc.mount(b"none", b"/usr", b"tmpfs", 0, None))
child = os.fork()
if child == 0:
    try:
        call("proc", libc.mount(b"proc", b"/usr", b"proc", 0xe, None))
    finally:
        os._exit(0)
os.waitpid(child, 0)
"""


def in_container() -> bool:
    """Whether this process runs in a container made by an engine or Kubernetes."""
    named = "container" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ
    return named or any(map(os.path.exists, MARKS))


def tried() -> dict[str, int]:
    """The error number of each step tried; 0 for a step that works. It stops at the first failure."""
    import subprocess
    import sys

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _TRY], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    said = (line.split() for line in done.stdout.splitlines())
    return {words[0]: int(words[1]) for words in said if len(words) == 2 and words[0] in STEPS and words[1].isdigit()}


def masked() -> list[str]:
    """The parts of /proc that the container's engine has mounted over."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            points = [line.split()[4] for line in file]
    except OSError:
        return []
    return sorted({one for one in points if one.startswith("/proc/")})


def filtered() -> bool:
    """Whether a seccomp filter applies to this process."""
    return "\nSeccomp:\t2\n" in (_read("/proc/self/status") or "")


def confined() -> str:
    """The AppArmor profile or SELinux context of this process; "" when nothing confines it."""
    label = (_read("/proc/self/attr/current") or "").strip("\0\n ")
    return "" if label in ("", "unconfined", "kernel") or label.endswith(":unconfined_t:s0") else label


def reasons() -> list[Message]:
    """Each setting that stands in the way, with how to change it; an empty list when there is none."""
    steps = tried()
    failed = next((step for step in STEPS if steps.get(step, 0)), None)
    found = []
    if failed is not None and failed != "proc":
        found.append(_why_not(failed, steps[failed]))
    hidden = masked()
    if failed == "proc" or (failed is not None and hidden):  # the step was not reached, but will fail
        found.append(_masked(hidden))
    return found


def _why_not(step: str, number: int) -> Message:
    what = {
        "user": "`unshare(CLONE_NEWUSER)`",
        "map": "`/proc/self/uid_map`",
        "namespaces": "`unshare(CLONE_NEWNS)`",
        "hostname": "`sethostname`",
        "mount": "`mount`",
    }[step]
    if number == errno.ENOSPC:
        return Message(
            "This node allows no more user namespaces (`user.max_user_namespaces`): raise that sysctl on the node."
        )
    label = confined()
    if label and (number == errno.EACCES or not filtered()):
        return Message(
            "The container's AppArmor profile or SELinux context ({label}) forbids {what}: start it with "
            "`--security-opt apparmor=unconfined` or `--security-opt label=disable`; in Kubernetes "
            "`securityContext.appArmorProfile.type: Unconfined`, or an own type in `seLinuxOptions`.",
            label=label,
            what=what,
        )
    if filtered():
        return Message(
            "The container's seccomp profile forbids {what}: start it with `--security-opt "
            "seccomp=deploy/seccomp/sandbox.json`; in Kubernetes `securityContext.seccompProfile` of type `Localhost` "
            "with that file as `localhostProfile`.",
            what=what,
        )
    return Message(
        "The kernel forbids {what} here ({reason}); in Kubernetes, `hostUsers: false` gives the pod a user namespace.",
        what=what,
        reason=os.strerror(number),
    )


def _masked(hidden: list[str]) -> Message:
    return Message(
        "Parts of the container's /proc are masked ({paths}), and then nobody inside may mount a new one: start it "
        "with `--security-opt unmask=ALL` (Podman) or `--security-opt systempaths=unconfined` (Docker); in Kubernetes "
        "`securityContext.procMount: Unmasked`, which needs `hostUsers: false`.",
        paths=", ".join(hidden[:3]) + (" …" if len(hidden) > 3 else "") if hidden else "?",
    )


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
