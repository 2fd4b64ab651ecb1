"""The kernel in the form that Firecracker needs: the ELF program inside a distribution's compressed image."""

from __future__ import annotations

import struct

from sandbox.errors import EngineUnavailable

# Offsets in the image's header (Documentation/x86/boot.rst): number of set-up sectors, magic, payload offset.
SECTORS, MAGIC, CONTENT = 0x1F1, 0x202, 0x248
SECTOR = 512
LARGEST = 1 << 29
ELF, GZIP, XZ, ZSTD = b"\x7fELF", b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"


def vmlinux(image: bytes) -> bytes:
    """The kernel in a bzImage, decompressed. Raises EngineUnavailable if the image is packed in another way."""
    if image.startswith(ELF):
        return image
    try:
        if image[MAGIC : MAGIC + 4] != b"HdrS":
            raise ValueError("no header")
        offset, size = struct.unpack_from("<II", image, CONTENT)
        start = ((image[SECTORS] or 4) + 1) * SECTOR + offset
        kernel = _decompressed(image[start : start + size])
        if not kernel.startswith(ELF):
            raise ValueError("no program")
    except (ValueError, IndexError, struct.error, EOFError, OSError) as problem:
        raise EngineUnavailable("the kernel's image cannot be unpacked: {problem}", problem=problem) from None
    return kernel


def _decompressed(packed: bytes) -> bytes:
    """The packed kernel is followed by its size, which the decompressors ignore."""
    if packed.startswith(XZ):
        import lzma

        try:
            return lzma.LZMADecompressor(memlimit=LARGEST).decompress(packed, LARGEST)
        except lzma.LZMAError as problem:
            raise ValueError(problem) from None
    if packed.startswith(GZIP):
        import zlib

        try:
            return zlib.decompressobj(31).decompress(packed, LARGEST)
        except zlib.error as problem:
            raise ValueError(problem) from None
    if packed.startswith(ZSTD):
        import os
        import subprocess

        path_alone = {"PATH": os.defpath}  # the system's: the owner's may have directories that tenants write to
        done = subprocess.run(["zstd", "-dcq"], input=packed[:-4], env=path_alone, capture_output=True, check=False)
        if done.returncode == 0:
            return done.stdout
    raise ValueError("an unknown compression")
