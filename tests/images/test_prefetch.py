"""Variants from a manifest: signed, verified, whole or not at all."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from sandbox.config.model import Config
from sandbox.errors import ConfigError, ImageError
from sandbox.images import manage, manifest, store
from sandbox.images.obtain import obtain
from sandbox.images.prefetch import fetch_kernel, prefetch
from tests.images import making
from tests.images.making import ARCH, compressed, digest
from tests.images.servers import Server, serving
from tests.sandboxes import Command, cli, home  # noqa: F401 - fixtures

ROOT = compressed(making.tar([making.file("x", b"of the variant")]))


def new_key() -> tuple[bytes, str]:
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem, base64.b64encode(key.public_key().public_bytes_raw()).decode()


PRIVATE, PUBLIC = new_key()


@pytest.fixture
def server(empty_store: Path) -> Iterator[Server]:
    with serving() as started:
        offer(started)
        yield started


def offer(server: Server, *, private: bytes = PRIVATE, machine: bytes | None = None, **changes: Any) -> bytes:
    """Puts a manifest, its signature and the archive there."""
    entry = {"url": "files/root.tar.gz", "sha256": digest(ROOT)[7:], "size": len(ROOT), **changes}
    artifacts = {f"rootfs-minimal-{ARCH}": entry, f"kernel-{ARCH}": entry}
    if machine is not None:
        server.file("/files/machine.tar.gz", machine)
        of_machine = {"url": "files/machine.tar.gz", "sha256": digest(machine)[7:], "size": len(machine)}
        artifacts[f"machine-{ARCH}"] = of_machine
    data = json.dumps({"version": "1.0.0", "artifacts": artifacts})
    server.file("/manifest.json", data.encode())
    server.file("/manifest.json.sig", manifest.sign(data.encode(), private))
    server.file("/files/root.tar.gz", ROOT)
    return data.encode()


def config(server: Server, **more: Any) -> Config:
    return Config.read({"image_source": f"{server.url}/manifest.json", "image_keys": [PUBLIC], **more})


def nothing_is_left(store_: Path) -> bool:
    return not [one for one in store_.rglob("*") if one.is_file()] and not manage.entries()


def test_a_variant_is_fetched_verified_and_named(server: Server, empty_store: Path) -> None:
    assert prefetch("minimal", config(server)) == digest(ROOT)
    image = store.find("minimal")
    assert Path(image.root, "x").read_bytes() == b"of the variant"
    image.release()
    assert not list((empty_store / "blobs").iterdir())
    prefetch("minimal", config(server))
    assert [path for path, *_ in server.seen].count("/files/root.tar.gz") == 1


def test_the_first_run_that_needs_it_fetches_it(server: Server) -> None:
    image = obtain(config(server, image="minimal"))
    assert image is not None and image.digest == digest(ROOT)
    image.release()


def test_the_kernel_comes_the_same_way(server: Server) -> None:
    assert Path(fetch_kernel(config(server))).read_bytes() == ROOT


def test_a_kernel_of_the_manifest_is_used_where_the_host_has_none(server: Server, tmp_path: Path) -> None:
    from sandbox.engines.machine.kernel import find_kernel
    from sandbox.errors import EngineUnavailable

    nowhere = str(tmp_path / "nowhere")
    with pytest.raises(EngineUnavailable, match="sandbox prefetch"):
        find_kernel(nowhere, nowhere)
    parts = ("boot/vmlinuz-6.1.0-9", b"kernel"), ("lib/modules/6.1.0-9/modules.dep", b"kernel/fuse.ko:\n")
    archive = compressed(making.tar([making.file(name, data) for name, data in parts]))
    offer(server, machine=archive)
    prefetch("minimal", config(server))
    found = find_kernel(nowhere, nowhere)
    assert found.version == "6.1.0-9" and Path(found.image).read_bytes() == b"kernel"
    assert [Path(one).name for one in found.files()] == ["fuse.ko"]


@pytest.mark.vm
@pytest.mark.usefixtures("machines")
def test_a_machine_boots_with_a_kernel_of_the_manifest(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sandbox.engines.qemu.template as template
    from sandbox import Sandbox
    from sandbox.engines.machine.kernel import find_kernel
    from sandbox.images.build import _machine

    offer(server, machine=Path(_machine(find_kernel().everything(), str(tmp_path))).read_bytes())
    prefetch("minimal", config(server))
    nowhere = str(tmp_path / "nowhere")
    own = find_kernel().image
    prefetched = find_kernel(nowhere, nowhere)
    assert prefetched.image != own
    monkeypatch.setattr(template, "find_kernel", lambda: prefetched)
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert sandbox.exec(["uname", "-r"]).stdout == f"{prefetched.version}\n"


def test_a_manifest_that_nobody_known_signed_is_refused_before_anything_is_downloaded(
    server: Server, empty_store: Path
) -> None:
    offer(server, private=new_key()[0])
    with pytest.raises(ImageError, match="not signed by one of"):
        prefetch("minimal", config(server))
    server.file("/manifest.json.sig", b"not base64!")
    with pytest.raises(ImageError, match="signature is damaged"):
        prefetch("minimal", config(server))
    del server.answers["/manifest.json.sig"]
    with pytest.raises(ImageError, match="404"):
        prefetch("minimal", config(server))
    assert "/files/root.tar.gz" not in [path for path, *_ in server.seen]
    assert nothing_is_left(empty_store)


def test_a_manifest_that_was_changed_after_it_was_signed_is_refused(server: Server, empty_store: Path) -> None:
    server.file("/manifest.json", offer(server).replace(b"1.0.0", b"1.0.1"))
    with pytest.raises(ImageError, match="not signed"):
        prefetch("minimal", config(server))
    assert nothing_is_left(empty_store)


def test_without_a_source_or_a_key_nothing_is_fetched(server: Server) -> None:
    with pytest.raises(ConfigError, match="image_keys"):
        prefetch("minimal", config(server, image_keys=[]))
    with pytest.raises(ConfigError, match="image_keys"):
        prefetch("minimal", config(server, image_keys=["short"]))
    with pytest.raises(ConfigError, match="image_source"):
        prefetch("minimal", Config())
    with pytest.raises(ConfigError, match="is not one of"):
        prefetch("tiny", config(server))
    with pytest.raises(ImageError, match="has no rootfs-full"):
        prefetch("full", config(server))


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "0" * 64},
        {"sha256": "../../x"},
        {"size": 5},
        {"size": -1},
        {"size": 10**30},
        {"size": True},
        {"url": "http://169.254.169.254/x"},
        {"url": "file:///etc/passwd"},
        {"url": 5},
    ],
    ids=str,
)
def test_an_invalid_signed_manifest_leaves_nothing(
    server: Server, empty_store: Path, changes: dict[str, Any]
) -> None:
    offer(server, **changes)
    with pytest.raises(ImageError):
        prefetch("minimal", config(server))
    assert not manage.entries()
    assert [one.name for one in empty_store.rglob("*") if one.is_file() and not one.name.endswith(".part")] == []


def test_an_archive_without_an_image_leaves_nothing(server: Server, empty_store: Path) -> None:
    bad = compressed(making.tar([making.file("../out")]))
    offer(server, sha256=digest(bad)[7:], size=len(bad))
    server.file("/files/root.tar.gz", bad)
    with pytest.raises(ImageError, match="leads out"):
        prefetch("minimal", config(server))
    assert not manage.entries()
    manage.prune()
    assert nothing_is_left(empty_store)


def test_the_command_line_prefetches(cli: Command, home: Path, server: Server) -> None:  # noqa: F811
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(f"image_source: {server.url}/manifest.json\nimage_keys: [{PUBLIC!r}]\n")
    done = cli("prefetch", "--variant=minimal")
    assert (done.stdout.strip(), done.stderr) == (digest(ROOT), "")
    assert "minimal" in cli("images", "list").stdout


def test_a_key_of_another_kind_cannot_sign() -> None:
    with pytest.raises(ImageError, match="Ed25519"):
        manifest.sign(b"x", b"no key")
    assert manifest.public_key(PRIVATE) == PUBLIC
