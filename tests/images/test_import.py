"""Importing: layouts and archives of every writer, each blob verified, and an image is there whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ImageError, NotFound
from sandbox.images import manage, store
from sandbox.images.export import export
from sandbox.images.importing import import_path
from tests.images import making
from tests.images.making import ARCH, Blobs, compressed, directory, file, hard_link, link, tar
from tests.sandboxes import Command, cli, home  # noqa: F401 - fixtures

LAYERS = [
    tar([directory("d", 0o555), file("d/x", b"one", 0o755), file("gone")]),
    tar([file(".wh.gone"), link("l", "d/x")]),
]
SEEN = {"d": "d555", "d/x": "755 b'one'", "l": "-> d/x"}
SAID = {"Cmd": ["sh"], "Env": ["A=b=c"], "User": "1000:5", "WorkingDir": "/w", "Entrypoint": ["/e"]}
OTHER = {"amd64": "arm64", "arm64": "amd64"}[ARCH]

pytestmark = pytest.mark.walls


def imported(path: Path, **more: Any) -> dict[str, str]:
    digest = import_path(str(path), **more)
    manage.name(digest, "it")
    image = store.find("it")
    image.release()
    return making.tree(image.root)


def test_an_oci_layout_is_unpacked_with_its_configuration(empty_store: Path, tmp_path: Path) -> None:
    assert imported(making.layout(tmp_path / "layout", LAYERS, SAID)) == SEEN
    image = store.find("it")
    assert (image.entrypoint, image.cmd, image.environment) == (["/e"], ["sh"], {"A": "b=c"})
    assert (image.user, image.workdir) == ("1000:5", "/w")
    image.release()


def test_an_archive_of_a_layout_is_read_as_it_is_and_compressed(empty_store: Path, tmp_path: Path) -> None:
    making.layout(tmp_path / "layout", LAYERS, SAID)
    subprocess.run(["tar", "-C", tmp_path / "layout", "-cf", tmp_path / "a.tar", "."], check=True)
    assert imported(tmp_path / "a.tar") == SEEN
    (tmp_path / "b.tar.gz").write_bytes(compressed((tmp_path / "a.tar").read_bytes()))
    assert imported(tmp_path / "b.tar.gz") == SEEN


def test_what_docker_save_wrote_is_read(empty_store: Path, tmp_path: Path) -> None:
    assert imported(making.docker_archive(tmp_path / "saved.tar", LAYERS, SAID)) == SEEN
    image = store.find("it")
    assert image.cmd == ["sh"]
    image.release()


def test_a_tar_of_a_root_is_an_image_without_a_configuration(empty_store: Path, tmp_path: Path) -> None:
    (tmp_path / "root.tar").write_bytes(LAYERS[0])
    assert imported(tmp_path / "root.tar") == {"d": "d555", "d/x": "755 b'one'", "gone": "644 b''"}


def test_of_several_platforms_this_machines_is_taken_also_from_an_index_in_an_index(
    empty_store: Path, tmp_path: Path
) -> None:
    blobs = Blobs()
    mine, other = blobs.image(LAYERS), blobs.image([tar([file("other")])], arch=OTHER)
    inner = blobs.add(blobs.index([other, mine]), "application/vnd.oci.image.index.v1+json")
    assert imported(blobs.layout(tmp_path / "layout", [inner])) == SEEN
    assert imported(tmp_path / "layout", architecture=OTHER) == {"other": "644 b''"}


def test_an_image_for_another_processor_alone_is_refused(empty_store: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=f"no image for linux/{ARCH}"):
        import_path(str(making.layout(tmp_path / "layout", LAYERS, arch=OTHER)))


def test_of_several_images_one_must_be_named(empty_store: Path, tmp_path: Path) -> None:
    blobs = Blobs()
    both = []
    for name, layers in (("one", LAYERS), ("two", [tar([file("two")])])):
        both.append({**blobs.image(layers), "annotations": {"org.opencontainers.image.ref.name": name}})
    place = blobs.layout(tmp_path / "layout", both)
    with pytest.raises(ImageError, match="'one', 'two'"):
        import_path(str(place))
    assert imported(place, ref="two") == {"two": "644 b''"}


@pytest.mark.parametrize("which", ["config", "layer", "manifest", "diff_id"])
def test_a_blob_that_is_not_the_promised_one_is_refused_and_nothing_is_left(
    empty_store: Path, tmp_path: Path, which: str
) -> None:
    blobs = Blobs()
    entry = blobs.image(LAYERS, SAID)
    manifest = json.loads(blobs.data[entry["digest"]])
    if which == "manifest":
        blobs.data[entry["digest"]] += b" "
    elif which == "diff_id":
        wrong = blobs.add(making.config_of([b"another", b"one"]), "application/vnd.oci.image.config.v1+json")
        entry = blobs.add(json.dumps({**manifest, "config": wrong}).encode(), entry["mediaType"])
    else:
        target = manifest["config"] if which == "config" else manifest["layers"][1]
        data = bytearray(blobs.data[target["digest"]])
        data[-5] ^= 1
        blobs.data[target["digest"]] = bytes(data)
    with pytest.raises(ImageError):
        import_path(str(blobs.layout(tmp_path / "layout", [entry])))
    assert [one for one in empty_store.rglob("*") if one.is_file()] == []
    assert manage.entries() == [] and manage.prune() == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"{}",
        b'{"manifests": 5}',
        b'{"manifests": [{"digest": "sha256:../../etc"}]}',
        b'{"manifests": [{"digest": "sha512:00"}]}',
        b"[" * 100_000,
        b'{"manifests": [' + b'{"digest": 1},' * 1000 + b"{}]}",
    ],
)
def test_an_invalid_index_is_refused(empty_store: Path, tmp_path: Path, said: bytes) -> None:
    place = making.layout(tmp_path / "layout", LAYERS)
    (place / "index.json").write_bytes(said)
    with pytest.raises(ImageError):
        import_path(str(place))


def test_a_link_in_a_layout_is_not_followed(empty_store: Path, tmp_path: Path) -> None:
    place = making.layout(tmp_path / "layout", LAYERS)
    (place / "index.json").rename(tmp_path / "index.json")
    (place / "index.json").symlink_to(tmp_path / "index.json")
    with pytest.raises(ImageError, match="missing"):
        import_path(str(place))


def test_two_who_import_the_same_image_at_once_both_have_it(empty_store: Path, tmp_path: Path) -> None:
    place = making.layout(tmp_path / "layout", [making.system()])
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: import_path(str(place)), range(4)))
    assert len(found) == 1 and len(manage.entries()) == 1
    assert {one.name for one in empty_store.iterdir()} == {"by-digest"}


SLOW = """
import sys, time
from sandbox.images import importing, unpack
real = unpack.Unpacker.layer
def layer(self, tar):
    real(self, tar)
    print("unpacked", flush=True)
    time.sleep(60)
unpack.Unpacker.layer = layer
importing.import_path(sys.argv[1])
"""


def test_a_process_killed_in_the_middle_leaves_no_image_and_prune_removes_the_rest(
    empty_store: Path, tmp_path: Path
) -> None:
    place = making.layout(tmp_path / "layout", LAYERS)
    importer = subprocess.Popen([sys.executable, "-c", SLOW, str(place)], stdout=subprocess.PIPE)
    assert importer.stdout is not None
    assert importer.stdout.readline() == b"unpacked\n"
    assert manage.entries() == [] and manage.prune() == []  # it is still at work
    importer.send_signal(signal.SIGKILL)
    importer.wait()
    importer.stdout.close()
    assert manage.entries() == []
    assert imported(place) == SEEN
    assert len(manage.prune()) == 1
    assert sorted(one.name for one in empty_store.iterdir()) == ["by-digest", "names"]


def test_names_are_removed_one_by_one_and_the_image_with_the_last(empty_store: Path, tmp_path: Path) -> None:
    digest = import_path(str(making.layout(tmp_path / "layout", LAYERS)))
    manage.name(digest, "one")
    manage.name(digest, "localhost:5000/two")
    manage.remove("one")
    assert [one.names for one in manage.entries()] == [["localhost:5000/two:latest"]]
    store.find(f"whatever@{digest}").release()
    manage.remove("localhost:5000/two:latest")
    assert manage.entries() == []
    with pytest.raises(NotFound):
        store.find("one")


def test_an_image_that_lost_its_name_goes_with_prune(empty_store: Path, tmp_path: Path) -> None:
    manage.name(import_path(str(making.layout(tmp_path / "a", LAYERS))), "it")
    second = import_path(str(making.layout(tmp_path / "b", [tar([file("x")])])))
    manage.name(second, "it")
    assert len(manage.entries()) == 2
    assert len(manage.prune()) == 1
    assert [one.digest for one in manage.entries()] == [second]


@pytest.mark.parametrize("name", ["../x", "..", "a/../b", "x@../../y", "x@sha256:../..", "\0", "a" * 5000])
def test_no_name_leads_out_of_the_store(empty_store: Path, name: str) -> None:
    with pytest.raises(NotFound):
        store.find(name)


def test_an_export_is_an_archive_that_imports_again_and_is_the_same_each_time(
    empty_store: Path, tmp_path: Path
) -> None:
    layers = [*LAYERS, tar([hard_link("again", "d/x")])]
    imported(making.layout(tmp_path / "layout", layers, SAID))
    image = store.find("it")
    for name in ("a.tar", "b.tar"):
        export(image.root, SAID, str(tmp_path / name), name="it", architecture=ARCH)
    image.release()
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert imported(tmp_path / "a.tar") == {**SEEN, "again": "755 b'one'"}


def test_the_command_line_lists_shows_exports_and_removes(cli: Command, empty_store: Path, tmp_path: Path) -> None:  # noqa: F811
    place = making.layout(tmp_path / "layout", LAYERS, SAID)
    done = cli("images", "import", str(place), "--name", "mine")
    assert done.returncode == 0 and done.stdout.startswith("sha256:"), done.stderr
    assert "mine" in cli("images", "list").stdout
    shown = json.loads(cli("images", "inspect", "mine").stdout)
    assert shown["config"]["Cmd"] == ["sh"] and shown["names"] == ["mine"]
    assert cli("images", "export", "mine", str(tmp_path / "out.tar")).returncode == 0
    assert cli("images", "import", str(tmp_path / "out.tar"), "--name", "localhost/again:1").returncode == 0
    assert len(json.loads(cli("images", "list", "--json").stdout)) == 2
    assert cli("images", "rm", "mine", "localhost/again:1").returncode == 0
    assert cli("images", "list").stdout == ""
    assert "needs a name" in cli("images", "import", str(place)).stderr
    assert "neither a file nor a reference" in cli("images", "import", "nothing", "--name", "x").stderr
    assert "no image 'gone'" in cli("images", "rm", "gone").stderr


def test_the_empty_storeis_private_to_its_owner(empty_store: Path, tmp_path: Path) -> None:
    imported(making.layout(tmp_path / "layout", LAYERS))
    assert os.stat(empty_store).st_mode & 0o077 == 0
