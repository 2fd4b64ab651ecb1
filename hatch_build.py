"""Builds the guest program, so that an installation carries it: a wheel for every architecture, an editable install for
this machine. A wheel also gets the dashboard's terminal, from npm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ARCHITECTURES = ("x86_64", "aarch64")


class GuestBuildHook(BuildHookInterface[Any]):
    """Runs `guest/build.py`; a wheel without both programs fails rather than being one without walls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        outdir = root / "src" / "sandbox" / "guest" / "bin"
        outdir.mkdir(parents=True, exist_ok=True)
        # The same interpreter, because ziglang is in this build's environment and in no other.
        build = [sys.executable, str(root / "guest" / "build.py"), str(outdir)]
        if version == "editable":
            subprocess.run(build, check=True)
            return
        subprocess.run([*build, "--arch", "all"], check=True)
        # The dashboard works without a terminal, and says so; a build must not need npm.
        subprocess.run([sys.executable, str(root / "scripts" / "vendor.py")], check=False)
        programs = [f"{name}-{arch}" for name in ("guest", "launcher") for arch in ARCHITECTURES]
        if missing := [name for name in programs if not (outdir / name).is_file()]:
            raise RuntimeError(f"guest/build.py did not make {', '.join(missing)} in {outdir}")
