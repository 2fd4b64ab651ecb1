"""Writes the images that a page imports into this directory: an OCI layout, an archive of Docker's, a tar of a root."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.images import making

LAYER = making.tar([making.directory("etc"), making.file("etc/motd", b"hello\n")])

if __name__ == "__main__":
    making.layout(Path("layout"), [LAYER])
    making.docker_archive(Path("saved.tar"), [LAYER])
    Path("rootfs.tar.gz").write_bytes(gzip.compress(LAYER))
