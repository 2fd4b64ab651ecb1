"""How much space an image may take. Images come from strangers, so whoever unpacks one sets the limits."""

from __future__ import annotations

from sandbox.errors import ImageError


class Bounds:
    """What one image may still take. Every method counts something, and raises ImageError when it is too much."""

    def __init__(
        self,
        *,
        size: int = 32 << 30,
        entries: int = 2_000_000,
        paths: int = 512 << 20,
        ratio: int = 200,
        free: int = 256 << 20,
    ) -> None:
        self.size = size  # bytes of all files together, holes counted in full
        self.entries = entries
        self.paths = paths  # bytes of the paths of all entries: they are kept in memory while a layer is unpacked
        self.ratio = ratio  # how many times larger a layer may become when decompressed, beyond `free` bytes
        self.free = free

    def take(self, size: int) -> None:
        """Counts bytes of a file."""
        self.size -= size
        if size < 0 or self.size < 0:
            raise ImageError("the image is larger than this machine accepts")

    def entry(self) -> None:
        """Counts one more file, directory or link."""
        self.entries -= 1
        if self.entries < 0:
            raise ImageError("the image has more files than this machine accepts")

    def path(self, size: int) -> None:
        """Counts the bytes of a path."""
        self.paths -= size
        if self.paths < 0:
            raise ImageError("the image has more files than this machine accepts")

    def grown(self, came: int, gave: int) -> None:
        """Checks a compressed layer of which `came` bytes, so far, became `gave` bytes."""
        if gave > self.free + self.ratio * came or gave > self.size + (1 << 30):
            raise ImageError("a layer of the image expands to an unreasonable size")
