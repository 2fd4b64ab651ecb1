"""Builds the guest, and the launcher, as static programs: `python guest/build.py OUTDIR [--arch x86_64|aarch64|all]`.

With ziglang (from PyPI) for both machines from any machine; else with the system's cc for this machine only.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHES = ("x86_64", "aarch64")
FLAGS = [
    "-std=gnu11", "-Os", "-static", "-s", "-Wall", "-Wextra", "-Werror",
    "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-fno-sanitize=all",
]  # fmt: skip


def machine() -> str:
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def compiler(arch: str) -> list[str]:
    """The command that compiles for `arch`; SystemExit says what to install when there is none."""
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-musl"]
    if arch == machine() and sys.platform == "linux" and (cc := shutil.which("cc")):
        return [cc]
    raise SystemExit(
        f"cannot build the guest for {arch}: install ziglang (pip install ziglang), "
        f"or, on a Linux {arch} machine, a C compiler with static libraries (apt-get install gcc libc6-dev)"
    )


def sources() -> dict[str, list[Path]]:
    """What each program is made of."""
    return {
        "guest": sorted(HERE.glob("*.c")),
        "launcher": [*sorted(HERE.glob("launcher/*.c")), HERE / "cbor.c"],
    }


def is_fresh(program: Path, made_of: list[Path]) -> bool:
    inputs = [*made_of, *HERE.rglob("*.h"), Path(__file__)]
    return program.exists() and program.stat().st_mtime > max(path.stat().st_mtime for path in inputs)


def build(outdir: Path, arch: str, name: str) -> Path:
    """Builds `outdir/NAME-ARCH` unless it is newer than everything it is made of."""
    program, made_of = outdir / f"{name}-{arch}", sources()[name]
    if is_fresh(program, made_of):
        return program
    outdir.mkdir(parents=True, exist_ok=True)
    made = outdir / f".{name}-{arch}.new"  # renamed when whole: nobody starts half a program
    command = [*compiler(arch), *FLAGS, "-o", str(made), *map(str, made_of)]
    subprocess.run(command, check=True)
    made.chmod(0o755)
    made.replace(program)
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--arch", choices=(*ARCHES, "all"), default=machine())
    options = parser.parse_args()
    for arch in ARCHES if options.arch == "all" else (options.arch,):
        for name in sources():
            print(build(options.outdir, arch, name))


if __name__ == "__main__":
    main()
