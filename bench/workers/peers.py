"""Peers that are Python libraries: one new sandbox and one command in it, no network, system directories readable."""

from __future__ import annotations

import os
import tempfile

from bench.harness import serve

SYSTEM = [path for path in ("/usr", "/lib", "/lib64", "/bin", "/etc") if os.path.exists(path)]


def sandlock() -> None:
    from sandlock import Sandbox

    result = Sandbox(fs_readable=SYSTEM, fs_writable=[tempfile.gettempdir()]).run(["/bin/true"])
    if not result.success:
        raise RuntimeError(str(result))


def nono() -> None:
    from nono_py import AccessMode, CapabilitySet, sandboxed_exec

    allowed = CapabilitySet()
    for path in SYSTEM:
        allowed.allow_path(path, AccessMode.READ)
    allowed.allow_path(tempfile.gettempdir(), AccessMode.READ_WRITE)
    allowed.block_network()
    result = sandboxed_exec(allowed, ["/bin/true"])
    if result.exit_code:
        raise RuntimeError(f"true exited with {result.exit_code}")


if __name__ == "__main__":
    serve({"sandlock": sandlock, "nono-py": nono}, {})
