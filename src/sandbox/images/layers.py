"""Layers as files: decompressed into an unnamed file, and checked against their digests, before anything is parsed."""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

from sandbox.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.images.bounds import Bounds

PIECE = 1 << 18
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def plain_layer(layer: BinaryIO, bounds: Bounds, directory: str, expected: str | None) -> BinaryIO:
    """The layer's tar, in an unnamed file in `directory`. Raises ImageError when it is too large or damaged, or when
    its digest is not the `expected` one (`sha256:…`)."""
    start = layer.read(4)
    pieces = (
        _gzip(layer, start) if start[:2] == GZIP else _zstd(layer, start) if start == ZSTD else _plain(layer, start)
    )
    made = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - the caller's
    try:
        digest, came, gave = hashlib.sha256(), 0, 0
        for read, piece in pieces:
            came += read
            gave += len(piece)
            bounds.grown(came, gave)
            digest.update(piece)
            made.write(piece)
        if expected is not None and f"sha256:{digest.hexdigest()}" != expected:
            raise ImageError("a layer of the image is not the one that its configuration names")
        made.seek(0)
        return made
    except BaseException:
        made.close()
        raise


def _plain(layer: BinaryIO, start: bytes) -> Iterator[tuple[int, bytes]]:
    yield len(start), start
    while piece := layer.read(PIECE):
        yield len(piece), piece


def _gzip(layer: BinaryIO, start: bytes) -> Iterator[tuple[int, bytes]]:
    """One or more gzip members."""
    inflate = zlib.decompressobj(31)
    data, came = start, len(start)
    try:
        while True:
            while data:
                if inflate.eof:
                    if not data.strip(b"\0"):  # padding after the last member
                        break
                    inflate = zlib.decompressobj(31)
                yield came, inflate.decompress(data, PIECE)
                came = 0
                data = inflate.unconsumed_tail or inflate.unused_data
            data = layer.read(PIECE)
            came = len(data)
            if not data:
                break
    except zlib.error as problem:
        raise ImageError("a layer of the image is damaged ({problem})", problem=problem) from None
    if not inflate.eof:
        raise ImageError("a layer of the image is cut short")


def _zstd(layer: BinaryIO, start: bytes) -> Iterator[tuple[int, bytes]]:
    zstd = _zstd_module()
    # The decompressor keeps the window in memory; without this limit a hostile frame could ask for gigabytes.
    options = {zstd.DecompressionParameter.window_log_max: 27}
    inflate = zstd.ZstdDecompressor(options=options)
    data, came = start, len(start)
    try:
        while True:
            while data or not inflate.needs_input:
                if inflate.eof:
                    data = inflate.unused_data or data  # a frame may end where a piece ends
                    if not data:
                        break
                    inflate = zstd.ZstdDecompressor(options=options)
                yield came, inflate.decompress(data, PIECE)
                came, data = 0, b""
            data = layer.read(PIECE)
            came = len(data)
            if not data:
                break
    except zstd.ZstdError as problem:
        raise ImageError("a layer of the image is damaged ({problem})", problem=problem) from None
    if not inflate.eof:
        raise ImageError("a layer of the image is cut short")


def _zstd_module() -> Any:
    import sys

    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise ImageError(
            "the image is compressed with zstd: `pip install 'agent-sandbox[images]'` brings what reads it"
        ) from None
    return zstd
