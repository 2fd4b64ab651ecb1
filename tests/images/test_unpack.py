"""Layers are unpacked as the specification says, and whatever is in them stays in the directory and within bounds."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ImageError
from sandbox.images.bounds import Bounds
from sandbox.images.layers import plain_layer
from sandbox.images.unpack import Unpacker
from tests.images.making import compressed, digest, directory, entry, file, hard_link, link, tar, tree

pytestmark = pytest.mark.walls


def unpack(place: Path, *layers: bytes, bounds: Bounds | None = None) -> dict[str, str]:
    """What a directory holds after these layers."""
    root = place / "root"
    root.mkdir()
    unpacker = Unpacker(str(root), bounds or Bounds())
    try:
        for layer in layers:
            unpacker.layer(io.BytesIO(layer))
    except BaseException:
        unpacker.close()
        raise
    unpacker.finish()
    return tree(root)


def test_later_layers_replace_and_modes_are_kept(tmp_path: Path) -> None:
    first = tar([directory("a", 0o555), file("a/x", b"old", 0o600), file("b", b"file"), link("c", "a")])
    second = tar([file("a/x", b"new", 0o755), directory("b"), file("b/y"), file("c", b"no link now")])
    assert unpack(tmp_path, first, second) == {
        "a": "d555",
        "a/x": "755 b'new'",
        "b": "d755",
        "b/y": "644 b''",
        "c": "644 b'no link now'",
    }


def test_a_whiteout_removes_what_earlier_layers_had(tmp_path: Path) -> None:
    first = tar([directory("a"), file("a/x"), directory("a/deep"), file("a/deep/y"), file("stays")])
    second = tar([file("a/.wh.x"), file("a/.wh.deep"), file("a/.wh.never-there"), file(".wh.gone/..")][:3])
    assert unpack(tmp_path, first, second) == {"a": "d755", "stays": "644 b''"}


def test_a_whiteout_leaves_what_its_own_layer_brings_whatever_the_order(tmp_path: Path) -> None:
    first = tar([file("x", b"old")])
    second = tar([file("x", b"new"), file(".wh.x")])
    assert unpack(tmp_path, first, second) == {"x": "644 b'new'"}


def test_an_opaque_directory_hides_all_of_earlier_layers_and_nothing_of_its_own(tmp_path: Path) -> None:
    first = tar([directory("a"), file("a/old"), directory("a/both"), file("a/both/old")])
    second = tar([directory("a"), directory("a/both"), file("a/both/new"), file("a/.wh..wh..opq"), file("a/new")])
    assert unpack(tmp_path, first, second) == {
        "a": "d755",
        "a/both": "d755",
        "a/both/new": "644 b''",
        "a/new": "644 b''",
    }


def test_hard_links_are_links_and_a_later_layer_does_not_write_through_them(tmp_path: Path) -> None:
    first = tar([file("x", b"one"), hard_link("y", "x")])
    seen = unpack(tmp_path, first, tar([file("y", b"two")]))
    assert seen == {"x": "644 b'one'", "y": "644 b'two'"}


def test_hard_links_share_an_inode(tmp_path: Path) -> None:
    unpack(tmp_path, tar([file("x", b"one"), hard_link("d/y", "x")]))
    assert os.stat(tmp_path / "root/x").st_ino == os.stat(tmp_path / "root/d/y").st_ino


def test_setuid_bits_owners_and_devices_are_left_out(tmp_path: Path) -> None:
    layer = tar(
        [file("su", mode=0o4755, uid=0), file("other", uid=12345), entry("null", tarfile.CHRTYPE), entry("p", b"6")]
    )
    seen = unpack(tmp_path, layer)
    assert seen["su"] == "755 b''" and "null" not in seen and seen["p"].startswith("?")
    assert {os.lstat(tmp_path / "root" / name).st_uid for name in seen} == {os.getuid()}


def test_parents_that_no_entry_brings_are_made(tmp_path: Path) -> None:
    assert unpack(tmp_path, tar([file("a/b/c")])) == {"a": "d755", "a/b": "d755", "a/b/c": "644 b''"}


def test_a_link_on_the_way_is_followed_within_the_image(tmp_path: Path) -> None:
    layer = tar([directory("usr"), directory("usr/bin"), link("bin", "/usr/bin"), file("bin/sh", b"x")])
    assert unpack(tmp_path, layer)["usr/bin/sh"] == "644 b'x'"


@pytest.mark.parametrize(
    "entries",
    [
        [file("../out")],
        [file("a/../../out")],
        [link("a", ".."), file("a/../out")],
        [hard_link("mine", "../../secret")],
        [file("x" * 300)],
        [file("/".join(["d"] * 250))],
        [link("self", "self"), file("self/x")],
        [file("a"), file("a/b")],
        [hard_link("x", "nothing")],
        [directory("d"), hard_link("x", "d")],
        [file(".wh.")],
        [entry("x", b"Z")],
    ],
    ids=lambda entries: "+".join(member.name[:12] for member, _ in entries),
)
def test_what_leads_out_or_nowhere_is_refused(tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    (tmp_path / "secret").write_text("of the host")
    with pytest.raises(ImageError):
        unpack(tmp_path, tar(entries))
    assert not (tmp_path / "out").exists() and not (tmp_path.parent / "out").exists()


@pytest.mark.parametrize("target", ["/", "..", "../..", "/..", "../../../../../../../../tmp"])
def test_no_link_leads_out(tmp_path: Path, target: str) -> None:
    layer = tar(
        [
            directory("d"),
            directory("tmp"),
            link("d/up", target),
            file("d/up/escaped", b"x"),
            hard_link("d/up/again", "d/up/escaped"),
        ]
    )
    seen = unpack(tmp_path, layer)
    assert [name for name in seen if name.endswith("escaped")]
    assert sorted(os.listdir(tmp_path)) == ["root"]
    assert not os.path.exists("/tmp/escaped") and not os.path.exists("/escaped")


def test_too_many_bytes_or_entries_end_it(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="larger"):
        unpack(tmp_path, tar([file("x", b"12345")]), bounds=Bounds(size=4))
    (tmp_path / "again").mkdir()
    with pytest.raises(ImageError, match="more files"):
        unpack(tmp_path / "again", tar([file(str(at)) for at in range(5)]), bounds=Bounds(entries=4))


def test_long_paths_do_not_fill_the_memory(tmp_path: Path) -> None:
    deep = "/".join(["d" * 200] * 19)
    with pytest.raises(ImageError, match="more files"):
        unpack(tmp_path, tar([file(f"{deep}/{at}") for at in range(5)]), bounds=Bounds(paths=40_000 + 3 * 4_000))


def packed_sparse(directory: Path, format: str) -> bytes:
    """What GNU tar makes of the file `holes`."""
    words = ["tar", "-C", str(directory), "--sparse", f"--format={format}", "-cf", "-", "holes"]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout


def test_a_hole_counts_in_full(tmp_path: Path) -> None:
    made = tmp_path / "holes"
    with open(made, "wb") as holes:
        holes.truncate(1 << 30)
    packed = packed_sparse(tmp_path, "gnu")
    assert len(packed) < 1 << 20
    with pytest.raises(ImageError, match="larger"):
        unpack(tmp_path, packed, bounds=Bounds(size=1 << 20))


def test_a_sparse_file_is_unpacked_as_one(tmp_path: Path) -> None:
    made = tmp_path / "holes"
    with open(made, "wb") as holes:
        holes.truncate(1 << 22)
        holes.seek(1 << 21)
        holes.write(b"in the middle")
    for format in ("gnu", "posix"):
        packed = packed_sparse(tmp_path, format)
        (tmp_path / format).mkdir()
        unpack(tmp_path / format, packed)
        found = tmp_path / format / "root/holes"
        assert found.read_bytes() == made.read_bytes()
        assert found.stat().st_blocks < 1000


def test_a_description_longer_than_any_path_is_refused_and_not_read_into_memory(tmp_path: Path) -> None:
    with pytest.raises(ImageError):
        unpack(tmp_path, tar([file("x" * 10_000_000)], tarfile.GNU_FORMAT))


def test_a_layer_that_grows_beyond_reason_is_refused(tmp_path: Path) -> None:
    packed = compressed(bytes(64 << 20))
    with pytest.raises(ImageError, match="unreasonable"):
        plain_layer(io.BytesIO(packed), Bounds(ratio=20, free=1 << 20), str(tmp_path), None)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd", "two members"])
def test_layers_come_plain_or_compressed(tmp_path: Path, kind: str) -> None:
    layer = tar([file("x", os.urandom(1 << 20))])
    packed = layer
    if kind == "gzip":
        packed = compressed(layer)
    elif kind == "two members":
        packed = compressed(layer[:5000]) + compressed(layer[5000:])
    elif kind == "zstd":
        from sandbox.images.layers import _zstd_module

        packed = _zstd_module().compress(layer)
    with plain_layer(io.BytesIO(packed), Bounds(), str(tmp_path), digest(layer)) as plain:
        assert plain.read() == layer
    cut = packed[: len(packed) // 2]
    with pytest.raises(ImageError):
        plain_layer(io.BytesIO(cut), Bounds(), str(tmp_path), digest(layer))
    with pytest.raises(ImageError):
        plain_layer(io.BytesIO(packed), Bounds(), str(tmp_path), digest(b"another"))
    assert os.listdir(tmp_path) == []


NAMES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "a/b",
        "a/b/c",
        "b/a",
        "..",
        "../x",
        "/",
        "/a",
        "./a/..",
        ".wh.a",
        "a/.wh.b",
        "a/.wh..wh..opq",
        "a//b",
    ]
)
TARGETS = st.sampled_from(["a", "b", "..", "/", "../..", "/a/b", ".", "a/..", "/proc/self/root", "/proc/self/cwd", ""])
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)


@st.composite
def made_layers(draw: st.DrawFn) -> list[bytes]:
    layers = []
    for _ in range(draw(st.integers(1, 3))):
        entries = []
        for _ in range(draw(st.integers(0, 8))):
            name, kind = draw(NAMES), draw(KINDS)
            content = draw(st.binary(max_size=20)) if kind == tarfile.REGTYPE else b""
            member, _ = entry(name, kind, draw(TARGETS), draw(st.sampled_from([0, 0o400, 0o644, 0o7777])))
            member.size = len(content)
            entries.append((member, content))
        layers.append(tar(entries, draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))))
    return layers


def attempt(top: Path, layers: list[bytes]) -> None:
    """Unpacks in a directory of its own and looks at everything around it."""
    place = top / os.urandom(8).hex()
    place.mkdir()
    (place / "secret").write_text("of the host")
    try:
        unpack(place, *layers)
    except ImageError:
        pass
    assert sorted(os.listdir(place)) == ["root", "secret"]
    assert (place / "secret").read_text() == "of the host"
    assert os.stat(place / "secret").st_nlink == 1
    for where, names, files in os.walk(place / "root"):
        for name in (*names, *files):
            try:
                info = os.lstat(os.path.join(where, name))
            except PermissionError:
                continue  # of a directory that can only be listed
            assert info.st_mode & 0o6000 == 0
            assert info.st_uid == os.getuid() and info.st_dev == os.stat(place).st_dev


@given(made_layers())
def test_whatever_layers_are_made_of_they_stay_in_their_directory(
    tmp_path_factory: pytest.TempPathFactory, layers: list[bytes]
) -> None:
    attempt(tmp_path_factory.getbasetemp(), layers)


@given(made_layers(), st.lists(st.tuples(st.integers(0, 20000), st.integers(0, 255)), max_size=8))
def test_damaged_layers_are_refused_or_stay_in_their_directory(
    tmp_path_factory: pytest.TempPathFactory, layers: list[bytes], changes: list[tuple[int, int]]
) -> None:
    damaged = []
    for layer in layers:
        data = bytearray(layer)
        for at, value in changes:
            data[at % len(data)] = value
        damaged.append(bytes(data))
    attempt(tmp_path_factory.getbasetemp(), damaged)


@given(st.binary(max_size=3000))
def test_bytes_that_are_not_an_archive_are_refused_or_empty(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    attempt(tmp_path_factory.getbasetemp(), [data])


def test_a_zstd_frame_that_ends_where_a_piece_ends_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox.images import layers
    from sandbox.images.bounds import Bounds

    content = os.urandom(2000)
    first, second = (layers._zstd_module().compress(one) for one in (content[:1000], content[1000:]))
    monkeypatch.setattr(layers, "PIECE", len(first) - 4)  # the first four bytes are read on their own
    with layers.plain_layer(io.BytesIO(first + second), Bounds(), str(tmp_path), None) as plain:
        assert plain.read() == content
