"""Building variants from Debian's packages. `make soak` builds one twice; the rest needs no package."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import ConfigError, ImageError
from sandbox.images import build
from sandbox.images.oci import this_architecture
from tests.images import making


def test_each_variant_has_what_those_before_it_have() -> None:
    minimal, standard, full = (set(build.packages(one)) for one in ("minimal", "standard", "full"))
    assert minimal < standard < full
    assert {"curl", "python3"} <= minimal and {"nodejs", "git"} <= standard and {"golang-go", "ruby"} <= full


def test_what_cannot_be_built_is_said_before_anything_is_done(
    empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="is not one of"):
        build.build("tiny")
    with pytest.raises(ImageError, match="--output"):
        build.build("minimal", key="key.pem")
    with pytest.raises(ImageError, match="this machine's kernel is for"):
        build.build("minimal", architecture="riscv64", output="public", kernel=True)
    monkeypatch.setattr(build, "SYSTEM_PATH", "/nowhere")  # the owner's PATH does not matter
    with pytest.raises(ImageError, match="apt install mmdebstrap"):
        build.build("minimal")
    assert not empty_store.exists()


def test_an_image_for_another_architecture_is_refused_where_its_programs_do_not_run(
    empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BINFMT", str(tmp_path))
    other = {"amd64": "arm64", "arm64": "amd64"}[this_architecture()]
    with pytest.raises(ImageError, match="runs no programs for"):
        build.build("minimal", architecture=other)
    with pytest.raises(ImageError, match="not for riscv64"):
        build.build("minimal", architecture="riscv64")


@pytest.mark.soak
def test_the_same_packages_give_the_same_image_and_it_runs(empty_store: Path, tmp_path: Path) -> None:
    first = build.build("minimal", output=str(tmp_path / "a"))
    second = build.build("minimal", output=str(tmp_path / "b"))
    assert first == second
    for name in os.listdir(tmp_path / "a"):
        subprocess.run(["cmp", tmp_path / "a" / name, tmp_path / "b" / name], check=True)
    (tmp_path / "project").mkdir()
    with Sandbox({"image": "minimal", "filesystem": {"root": str(tmp_path / "project")}}) as sandbox:
        assert sandbox.exec("python3 -c 'print(6 * 7)' && curl --version").stdout.startswith("42\ncurl")


@pytest.mark.soak
@pytest.mark.root
def test_root_and_an_ordinary_user_build_the_same_image(empty_store: Path, tmp_path: Path) -> None:
    here = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o777)
        script = f"from sandbox.images import build; print(build.build('minimal', output='{work}/public'))"
        environment = ["env", f"SANDBOX_CACHE_DIR={work}/cache"]
        words = [str(here / "scripts/as-user"), *environment, sys.executable, "-c", script]
        done = subprocess.run(words, cwd=here, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == build.build("minimal"), done.stderr


def test_an_archive_says_nothing_of_who_built_it_and_keeps_everything_else(tmp_path: Path) -> None:
    entries = [making.directory("a", 0o1777), making.file("a/f", b"content", 0o4755), making.link("l", "a/f")]
    for at, (member, _) in enumerate(entries):
        member.uid, member.gid, member.uname = at + 1, at + 42, "_apt"
    (tmp_path / "in.tar").write_bytes(making.tar([*entries, making.hard_link("h", "a/f")]))
    with build._without_owners(str(tmp_path / "in.tar"), str(tmp_path)) as made, tarfile.open(fileobj=made) as archive:
        found = {one.name: one for one in archive}
        assert {(one.uid, one.gid, one.uname) for one in found.values()} == {(0, 0, "")}
        assert (found["a"].mode, found["a/f"].mode, found["a/f"].mtime) == (0o1777, 0o4755, making.TIME)
        assert (found["l"].linkname, found["h"].linkname) == ("a/f", "a/f")
        assert (content := archive.extractfile("a/f")) is not None and content.read() == b"content"
