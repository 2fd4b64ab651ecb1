"""The kernel that machines run: the distribution's stock kernel, as installed."""

from __future__ import annotations

import os
import re

from sandbox.errors import EngineUnavailable, Message

# The modules that a machine needs. A module that is built into the kernel has no file.
MODULES = ("virtio_mmio", "virtio_console", "virtio_blk", "virtio_net", "fuse", "overlay")
VSOCK_MODULES = ("virtio_mmio", "virtio_net", "vmw_vsock_virtio_transport", "virtio_rng", "fuse", "overlay")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_SUFFIX = re.compile(r"\.ko(\.xz|\.gz|\.zst)?$")


class InstalledKernel:
    """An installed kernel: its version, its image and its modules."""

    def __init__(self, version: str, image: str, modules: str) -> None:
        self.version = version
        self.image = image
        self.list = os.path.join(modules, "modules.dep")  # rewritten when any module changes
        self._modules = modules

    def files(self, modules: Sequence[str] = MODULES) -> list[str]:
        """The files of those modules that are not built in, each after the modules it depends on."""
        depends = self._dependencies()
        ordered: list[str] = []
        for name in modules:
            file = depends.by_name.get(name)
            if file is not None:
                _add(file, depends.needs, ordered)
        return [os.path.join(self._modules, one) for one in ordered]

    def everything(self) -> list[str]:
        """All files of this kernel that a virtual machine needs, with any engine."""
        return sorted({self.image, self.list, *self.files(), *self.files(VSOCK_MODULES)})

    def _dependencies(self) -> _Dependencies:
        try:
            with open(self.list, encoding="utf-8") as file:
                return _Dependencies(file.read())
        except OSError as problem:
            raise EngineUnavailable(
                "the kernel {version} has no list of its modules ({problem}); install its package again",
                version=self.version,
                problem=problem.strerror,
            ) from None


class _Dependencies:
    """What `modules.dep` says: which file needs which others."""

    def __init__(self, text: str) -> None:
        self.needs: dict[str, list[str]] = {}
        self.by_name: dict[str, str] = {}
        for line in text.splitlines():
            file, _, others = line.partition(":")
            self.needs[file] = others.split()
            self.by_name[_SUFFIX.sub("", os.path.basename(file)).replace("-", "_")] = file


def _add(file: str, needs: dict[str, list[str]], ordered: list[str]) -> None:
    if file in ordered:
        return
    for other in needs.get(file, ()):
        _add(other, needs, ordered)
    ordered.append(file)


MISSING = Message(
    "no Linux kernel for a virtual machine was found in /boot: `apt install linux-image-amd64` (the stock one, not "
    "-cloud-); the file must be readable for you; or `sandbox prefetch` from a manifest that has one"
)


def find_kernel(boot: str = "/boot", modules: str = "/lib/modules") -> InstalledKernel:
    """The newest installed kernel whose image is readable and whose modules exist; if there is none, the kernel from
    `sandbox prefetch`. Raises EngineUnavailable."""
    found = _kernels(boot, modules) or _prefetched()
    if not found:
        raise EngineUnavailable(MISSING)
    return max(found, key=lambda one: [int(part) for part in re.findall(r"\d+", one.version)])


def _prefetched() -> list[InstalledKernel]:
    from sandbox.errors import NotFound
    from sandbox.images.prefetch import MACHINE_KERNEL
    from sandbox.images.store import find

    try:
        image = find(MACHINE_KERNEL)
    except NotFound:
        return []
    image.release()  # its files are read at once; if they are removed meanwhile, reading them fails
    return _kernels(f"{image.root}/boot", f"{image.root}/lib/modules")


def _kernels(boot: str, modules: str) -> list[InstalledKernel]:
    found = []
    for name in _entries(boot):
        version = name.removeprefix("vmlinuz-")
        image, directory = os.path.join(boot, name), os.path.join(modules, version)
        if version != name and os.access(image, os.R_OK) and os.path.exists(os.path.join(directory, "modules.dep")):
            found.append(InstalledKernel(version, image, directory))
    return found


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def read_module(path: str) -> bytes:
    """A module's content, decompressed. Raises EngineUnavailable for a compression that Python does not have."""
    with open(path, "rb") as file:
        content = file.read()
    if path.endswith(".xz"):
        import lzma

        return lzma.decompress(content)
    if path.endswith(".gz"):
        import gzip

        return gzip.decompress(content)
    if path.endswith(".zst"):
        return _zstd(content, path)
    return content


def _zstd(content: bytes, path: str) -> bytes:
    import subprocess

    try:
        path_alone = {"PATH": os.defpath}  # the system's: the owner's may have directories that tenants write to
        return subprocess.run(["zstd", "-dcq"], input=content, env=path_alone, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise EngineUnavailable(
            "the kernel's module {path} is compressed with zstd, and `zstd` is missing", path=path
        ) from None
