"""Where the static programs are: the guest and the launcher."""

from __future__ import annotations

import os

from sandbox.errors import EngineUnavailable

ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def guest_binary() -> str:
    """The guest for this machine. Raises EngineUnavailable when the package does not include it."""
    return _binary("guest")


def launcher_binary() -> str:
    """What starts commands in a running sandbox (rpc/launches.py). Raises EngineUnavailable."""
    return _binary("launcher")


def _binary(name: str) -> str:
    machine = os.uname().machine
    arch = ARCHITECTURES.get(machine)
    if arch is None:
        raise EngineUnavailable("there is no guest program for {machine}, only for x86_64 and aarch64", machine=machine)
    path = os.path.join(os.path.dirname(__file__), "bin", f"{name}-{arch}")
    if not os.path.exists(path):
        raise EngineUnavailable(
            "the guest program {path} is missing: reinstall agent-sandbox, or in a checkout run"
            " `python guest/build.py src/sandbox/guest/bin`",
            path=path,
        )
    return path
