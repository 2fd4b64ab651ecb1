"""Whether this host runs a machine's processors itself (KVM), or QEMU must emulate them.

We find out by running one: `/dev/kvm` may exist and open, and still not run a kernel. The answer is cached until the
next boot.
"""

from __future__ import annotations

import json
import os

from sandbox.config.home import cache_directory
from sandbox.guest.binary import guest_binary

KVM, EMULATED = "kvm", "tcg"
DEVICE = "/dev/kvm"
WORKS = "works"


def acceleration() -> str:
    """`kvm` where a virtual processor really runs, else `tcg` (emulation)."""
    return KVM if why_not() is None else EMULATED


def why_not() -> str | None:
    """None where KVM works; else what stands in the way."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"{DEVICE} is missing or not yours to open"
    kept = os.path.join(cache_directory(), "acceleration.json")
    key = _key()
    try:
        with open(kept, encoding="utf-8") as file:
            told = json.load(file)
        if told["key"] == key and isinstance(told["said"], str):
            said = told["said"]
            return None if said == WORKS else said
    except (OSError, ValueError, KeyError, TypeError):
        pass
    said = _try()
    try:
        _keep(kept, {"key": key, "said": said})
    except OSError:
        pass  # a cache that cannot be written: the next start tries again
    return None if said == WORKS else said


def _key() -> list[object]:
    status = os.stat(DEVICE)
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return [file.read().strip(), status.st_rdev, status.st_ctime_ns, os.geteuid()]


def _try() -> str:
    import subprocess

    try:
        done = subprocess.run([guest_binary(), "--kvm"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    return done.stdout.decode(errors="replace").strip() or "no answer"


def _keep(path: str, content: dict[str, object]) -> None:
    import tempfile

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False, encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(file.name, path)
