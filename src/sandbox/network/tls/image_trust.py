"""Adds the gate's authority to an image's trust stores: copies of its bundle and key stores, with the authority, cover
them.

The copies are made once for each generation of the authority and state of the image's certificates, and kept with the
generation.
"""

from __future__ import annotations

import os

from sandbox.config.rooted import inside, read_inside
from sandbox.network.tls.stored_authority import FILES, Generation, listed, write
from sandbox.network.tls.system_certificates import BUNDLES, JAVAS, KEY_STORES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.network.tls.trust import TrustFiles

MOST = 4 << 20
BUNDLE = BUNDLES[0]  # where most programs look


def for_image(generation: Generation, root: str) -> Generation | None:
    """What a sandbox with this image needs to trust the gate, besides the image's own certificates, or this machine's
    if the image has none. None where it cannot be stored."""
    sources = [path for one in (*BUNDLES, *KEY_STORES, *_javas(root)) if (path := inside(root, one)) is not None]
    stamp = _stamp(root, sources)
    directory = os.path.join(generation.directory, f"image-{stamp}")
    try:
        if not os.path.isdir(directory):
            _make(directory, generation, root)
        found = Generation(directory)
    except OSError:
        return None
    if not found.covered:  # an image without certificates gets a bundle where most programs look for one
        found.added = [(f"{directory}/{FILES[1]}", BUNDLE)]
    return found


def _javas(root: str) -> list[str]:
    """Key stores of the image's Java installations."""
    place = inside(root, JAVAS)
    try:
        names = sorted(os.listdir(root + place))[:100] if place is not None else []
    except OSError:
        names = []
    return [f"{JAVAS}/{one}/lib/security/cacerts" for one in names]


def _stamp(root: str, paths: list[str]) -> str:
    """The state of an image's certificates, as a name."""
    import zlib

    found = [root]
    for path in paths:
        info = os.lstat(root + path)
        found.append(f"{path} {info.st_ino} {info.st_size} {info.st_mtime_ns}")
    text = "\n".join(found).encode("utf-8", "surrogateescape")
    return f"{int.from_bytes(text, 'big') % (2**61 - 1):x}{zlib.crc32(text):x}"


def trusted_in(root: str, authority: bytes) -> TrustFiles:
    """What makes tenants of an image trust `authority` (PEM)."""
    from sandbox.network.tls.trust import trusted

    def read(path: str) -> bytes | None:
        return read_inside(root, path, MOST)

    if any(read(path) for path in BUNDLES):
        return trusted(authority, read=read, real=lambda path: inside(root, path) or path, key_stores=_javas(root))
    trust = trusted(authority)
    trust.covered = []  # these are this machine's files; the image has none to cover
    return trust


def _make(directory: str, generation: Generation, root: str) -> None:
    with open(f"{generation.directory}/{FILES[0]}", "rb") as file:
        trust = trusted_in(root, file.read())
    beside = f"{directory}.{os.urandom(4).hex()}"
    os.mkdir(beside, 0o700)
    for path, _, content in trust.files:
        write(f"{beside}/{os.path.basename(path)}", content, 0o644)
    write(f"{beside}/trusted", listed(trust), 0o600)
    try:
        os.rename(beside, directory)
    except OSError:
        if not os.path.isdir(directory):
            raise
        import shutil

        shutil.rmtree(beside)  # another start made it first
