"""Whether virtual machines are accelerated: a processor is tried, and its answer decides for `max` and doctor."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox import EngineUnavailable
from sandbox.config.model import Config
from sandbox.engines.choose import engine_name
from sandbox.engines.machine import acceleration
from sandbox.engines.qemu.command import find_qemu
from sandbox.engines.qemu.engine import findings
from sandbox.guest.binary import guest_binary

Try = Callable[[str], Path]


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Puts a program in the place of the one that tries a processor. Returns the file in which it notes its turns."""
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr(acceleration, "DEVICE", str(device))
    monkeypatch.setenv("SANDBOX_CACHE_DIR", str(tmp_path / "cache"))

    def says(text: str) -> Path:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\necho turn >> {tmp_path}/turns\necho {text}\n")
        program.chmod(0o755)
        monkeypatch.setattr(acceleration, "guest_binary", lambda: str(program))
        return tmp_path / "turns"

    return says


def test_a_processor_is_tried_once_until_the_device_is_another(tried: Try) -> None:
    turns = tried("works")
    assert [acceleration.why_not(), acceleration.acceleration(), acceleration.acceleration()] == [None, "kvm", "kvm"]
    assert turns.read_text() == "turn\n"
    os.chmod(acceleration.DEVICE, 0o600)  # its change time is another
    assert acceleration.why_not() is None and turns.read_text() == "turn\n" * 2


def test_a_processor_that_does_not_run_is_emulated_with_the_reason(tried: Try) -> None:
    tried("it stands still")
    assert (acceleration.why_not(), acceleration.acceleration()) == ("it stands still", "tcg")


@pytest.mark.parametrize("kept", ["", "[]", '{"key": 1}', '{"key": [], "said": "works"}'])
def test_a_kept_answer_that_is_not_ours_is_not_believed(tried: Try, tmp_path: Path, kept: str) -> None:
    tried("it stands still")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/acceleration.json").write_text(kept)
    assert acceleration.acceleration() == "tcg"


def test_without_the_device_nothing_is_tried(tried: Try) -> None:
    turns = tried("works")
    os.unlink(acceleration.DEVICE)
    assert "is missing" in (acceleration.why_not() or "") and not turns.exists()


def test_the_real_program_has_an_answer_on_this_machine() -> None:
    said = acceleration._try()
    assert said == "works" or (said not in ("", "no answer") and os.path.exists(guest_binary())), said


def _needs_machines() -> None:
    from sandbox.engines.machine.kernel import find_kernel

    try:
        find_qemu(), find_kernel()
    except EngineUnavailable as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize("said, engine", [("works", "qemu"), ("it stands still", "bubblewrap")])
def test_max_takes_a_machine_where_it_is_accelerated_and_nowhere_else(tried: Try, said: str, engine: str) -> None:
    _needs_machines()
    tried(said)
    assert engine_name(Config(mode="max")) == engine
    assert engine_name(Config()) == "bubblewrap"
    assert engine_name(Config(mode="max", engine="bubblewrap")) == "bubblewrap"
    assert engine_name(Config(engine="microvm")) == "qemu"  # asked for: emulated if need be


@pytest.mark.parametrize("said, ok", [("works", True), ("it stands still", False)])
def test_doctor_says_which_and_what_emulation_costs(tried: Try, said: str, ok: bool) -> None:
    _needs_machines()
    tried(said)
    (told,) = [one for one in findings() if one.name == "acceleration"]
    assert (told.ok, told.detail) == (ok, "KVM" if ok else said)
    assert ok or (not told.needed and "10 to 30 times as long" in str(told.remedy))
