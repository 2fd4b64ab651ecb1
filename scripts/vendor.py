"""Fetches the terminal (xterm.js) and the viewer of screens (noVNC) that the dashboard shows from npm.

Run by scripts/setup and when a wheel is built.

Each package is of one version and checked against its hash, whatever registry npm is configured for. Does nothing when
everything is there.
"""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "src" / "sandbox" / "server" / "dashboard" / "vendor"
# package, version, sha512 as npm writes it, and the files that we want under their names here
PACKAGES = [
    (
        "@xterm/xterm",
        "6.0.0",
        "TQwDdQGtwwDt+2cgKDLn0IRaSxYu1tSUjgKarSDkUM0ZNiSRXFpjxEsvc/Zgc5kq5omJ+V0a8/kIM2WD3sMOYg==",
        {"lib/xterm.mjs": "xterm.mjs", "css/xterm.css": "xterm.css", "LICENSE": "xterm.LICENSE"},
    ),
    (
        "@xterm/addon-fit",
        "0.11.0",
        "jYcgT6xtVYhnhgxh3QgYDnnNMYTcf8ElbxxFzX0IZo+vabQqSPAjC3c1wJrKB5E19VwQei89QCiZZP86DCPF7g==",
        {"lib/addon-fit.mjs": "addon-fit.mjs"},
    ),
    (
        "@novnc/novnc",
        "1.7.0",
        "ucEJOx4T2avIRCleodk7YobZj5O2Ga2AeLfQ69A/yjG9HHba2+PDgwSkN3FttrmG+70ZGx21sElNFouK13RzyA==",
        {"core/": "novnc/core/", "vendor/": "novnc/vendor/", "LICENSE.txt": "novnc/LICENSE"},
    ),
]


def fetch(package: str, version: str, sha512: str) -> bytes:
    """The package's archive. Raises when npm cannot get it or it is another one."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(
            ["npm", "pack", "--silent", f"{package}@{version}"], cwd=directory, check=True, stdout=subprocess.DEVNULL
        )
        (archive,) = Path(directory).iterdir()
        content = archive.read_bytes()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != sha512:
        raise RuntimeError(f"{package}@{version} is not the package it was when this was written")
    return content


def keep(archive: tarfile.TarFile, inside: str, name: str) -> None:
    """One file of a package, or with a slash at the end all that is in a directory of it."""
    for member in archive.getmembers():
        path = member.name.removeprefix("package/")
        whole = inside.endswith("/") and path.startswith(inside)
        if not member.isfile() or ".." in path or not (whole or path == inside):
            continue
        target = TARGET / (name + path[len(inside) :])
        target.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None
        target.write_bytes(content.read())


def main() -> int:
    stamp = "\n".join(f"{name} {version} {sha512}" for name, version, sha512, _ in PACKAGES)
    stamped = TARGET / "versions"
    if stamped.is_file() and stamped.read_text() == stamp:
        return 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for package, version, sha512, wanted in PACKAGES:
        with tarfile.open(fileobj=io.BytesIO(fetch(package, version, sha512))) as archive:
            for inside, name in wanted.items():
                keep(archive, inside, name)
    stamped.write_text(stamp)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.CalledProcessError, RuntimeError) as problem:
        sys.exit(f"what the dashboard shows could not be fetched: {problem}")
