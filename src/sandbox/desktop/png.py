"""Writes PNG files from pixels. Image files from inside are never passed on, only pixels in a file we made."""

from __future__ import annotations

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_FAST = 1  # zlib's level: a screen compresses well at any


def encode(pixels: bytes, width: int, height: int) -> bytes:
    """An image of `pixels`, four bytes each: blue, green, red, and one that is ignored."""
    colours = bytearray(width * height * 3)
    colours[0::3], colours[1::3], colours[2::3] = pixels[2::4], pixels[1::4], pixels[0::4]
    row = width * 3
    view = memoryview(colours)
    packer = zlib.compressobj(_FAST)
    packed: list[bytes] = []
    for at in range(0, len(colours), row):
        packed += (packer.compress(b"\0"), packer.compress(view[at : at + row]))  # each row's filter, and the row
    packed.append(packer.flush())
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", b"".join(packed)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
