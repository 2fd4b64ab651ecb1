"""Building variants from Debian's packages. `make soak` builds one twice; the rest needs no package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import ConfigError, ImageError
from sandbox.images import build


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
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ImageError, match="apt install mmdebstrap"):
        build.build("minimal")
    assert not empty_store.exists()


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
