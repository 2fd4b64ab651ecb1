"""Builds the guest program for every architecture, so that a wheel or an editable install carries it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ARCHITECTURES = ("x86_64", "aarch64")


class GuestBuildHook(BuildHookInterface[Any]):
    """Runs `guest/build.py`; a build without both programs fails rather than making a wheel without walls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        outdir = root / "src" / "sandbox" / "guest" / "bin"
        programs = [outdir / f"guest-{arch}" for arch in ARCHITECTURES]
        # pip asks an editable build twice (metadata, then the build); a release is always built from scratch.
        if version == "editable" and newer(programs, [*root.glob("guest/*.[ch]"), root / "guest" / "build.py"]):
            return
        outdir.mkdir(parents=True, exist_ok=True)
        # The same interpreter, because ziglang is in this build's environment and in no other.
        subprocess.run([sys.executable, root / "guest" / "build.py", outdir, "--arch", "all"], check=True)
        if missing := [program.name for program in programs if not program.is_file()]:
            raise RuntimeError(f"guest/build.py did not make {', '.join(missing)} in {outdir}")


def newer(targets: list[Path], sources: list[Path]) -> bool:
    """True when every target exists and none is older than a source."""
    if not all(target.is_file() for target in targets):
        return False
    return min(t.stat().st_mtime for t in targets) >= max(s.stat().st_mtime for s in sources)
