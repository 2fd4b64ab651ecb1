"""Variants from `image_source`: fetches the manifest, its signature and the archive, and unpacks it like any image."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox.errors import ConfigError
from sandbox.images import manage, store
from sandbox.images.download import Wanted, download, fetch_document
from sandbox.images.importing import import_root
from sandbox.images.manifest import SIGNATURE, Manifest, verify
from sandbox.images.names import VARIANTS
from sandbox.images.oci import DOCUMENT, this_architecture
from sandbox.images.progress import ShownProgress
from sandbox.images.web import Web

if TYPE_CHECKING:
    from sandbox.config.model import Config

KERNEL, ROOTFS = "kernel-{arch}", "rootfs-{variant}-{arch}"
MACHINE = "machine-{arch}"  # a kernel and its modules, at their paths on a host, for virtual machines
MACHINE_KERNEL = "machine-kernel"  # the name under which it is stored, like an image


def prefetch(variant: str, config: Config, *, architecture: str | None = None) -> str:
    """Downloads a variant and names it. Returns its digest. Raises ConfigError or ImageError, and leaves only what a
    later try can resume from."""
    if variant not in VARIANTS:
        raise ConfigError("{name!r} is not one of {names}", name=variant, names=", ".join(VARIANTS), path="image")
    if config.image_source is None:
        raise ConfigError("names no manifest; set it to the URL of one", path="image_source")
    if not config.image_keys:
        raise ConfigError("is empty: pin the public key that signs the manifest", path="image_keys")
    web = Web(config.image_source, config.network.ca_certificates)
    manifest = fetch_manifest(web, config.image_source, config.image_keys)
    wanted = architecture or this_architecture()
    source = f"{config.image_source} {manifest.version}"
    digest = _fetch(web, manifest, ROOTFS.format(variant=variant, arch=wanted), wanted, source)
    manage.name(digest, variant if wanted == this_architecture() else f"{variant}-{wanted}")
    machine = MACHINE.format(arch=this_architecture())
    if wanted == this_architecture() and machine in manifest.artifacts:
        manage.name(_fetch(web, manifest, machine, wanted, source), MACHINE_KERNEL)
    return digest


def _fetch(web: Web, manifest: Manifest, name: str, architecture: str, source: str) -> str:
    """Downloads and unpacks an archive of the manifest. Returns its digest."""
    artifact = manifest.artifact(name)
    if not store.has(artifact.digest):
        with ShownProgress() as shown:
            path = download(web, Wanted(artifact.url, artifact.digest, artifact.size), shown.file(name, artifact.size))
        said = {"Labels": {"version": manifest.version}}
        try:
            import_root(path, said, architecture=architecture, source=source)
            os.unlink(path)
        except FileNotFoundError:  # another process prefetched it too, and finished first
            if not store.has(artifact.digest):
                raise
    return artifact.digest


def fetch_manifest(web: Web, url: str, keys: list[str]) -> Manifest:
    """The manifest at `url`, if one of `keys` signed it. Raises ImageError."""
    data = fetch_document(web, url, DOCUMENT)
    verify(data, fetch_document(web, f"{url}{SIGNATURE}", 4096), keys)
    return Manifest.read(data, url)


def fetch_kernel(config: Config, *, architecture: str | None = None) -> str:
    """Downloads the manifest's kernel. Returns the path of the (gzip-compressed) file."""
    if config.image_source is None:
        raise ConfigError("names no manifest; set it to the URL of one", path="image_source")
    web = Web(config.image_source, config.network.ca_certificates)
    manifest = fetch_manifest(web, config.image_source, config.image_keys)
    name = KERNEL.format(arch=architecture or this_architecture())
    artifact = manifest.artifact(name)
    with ShownProgress() as shown:
        return download(web, Wanted(artifact.url, artifact.digest, artifact.size), shown.file(name, artifact.size))
