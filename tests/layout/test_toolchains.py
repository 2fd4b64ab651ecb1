"""Files of the project that every start reads, whatever tenants made of them."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.layout.toolchains import _base_python


def test_the_base_of_an_environment_is_found(tmp_path: Path) -> None:
    file = tmp_path / "pyvenv.cfg"
    file.write_text("version = 3.11\nhome = /usr/bin\n")
    assert _base_python(str(file)) == os.path.realpath("/usr/bin")


def test_a_fifo_or_a_device_in_its_place_does_not_hold_up_a_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert _base_python(str(tmp_path / "fifo")) is None
    assert _base_python(str(tmp_path / "zero")) is None
