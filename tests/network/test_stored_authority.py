"""The authority that every sandbox trusts: made by the first start, whatever happens to be the matter with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.network.tls import stored_authority, trust
from sandbox.network.tls.system_certificates import BUNDLES
from tests.network.lab import Pki
from tests.network.room import Walls, walled

__all__ = ["walled"]

pytestmark = pytest.mark.walls
TOLD = "add 'refused.test' to network.allowed_hosts"
CURL = ["curl", "-sS", "https://refused.test/"]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's authority is kept: nowhere yet."""
    directory = tmp_path / "authority"
    monkeypatch.setenv("SANDBOX_AUTHORITY", str(directory))
    return directory


def started(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sandbox", "run", "--", *CURL]
    directory.mkdir()
    return subprocess.Popen(
        command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def generations(kept: Path) -> set[str]:
    return {one.name for one in kept.iterdir() if one.is_dir() and not one.is_symlink()}


def test_first_runs_that_start_at_once_all_get_a_readable_notice(kept: Path, tmp_path: Path) -> None:
    runs = [started(tmp_path / str(at)) for at in range(3)]
    for one in runs:
        out, errors = one.communicate(timeout=60)
        assert TOLD in out, errors
    made = generations(kept)
    assert TOLD in started(tmp_path / "later").communicate(timeout=60)[0]
    assert generations(kept) == made  # the next one finds everything in order
    assert not list(kept.glob(".*"))
    assert {one.stat().st_mode & 0o777 for one in kept.glob("*/key.pem")} == {0o600}


def test_where_none_can_be_kept_tenants_get_a_readable_notice_too(
    walled: Walls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SANDBOX_AUTHORITY", str(tmp_path / "file" / "none"))
    assert TOLD in walled().run(*CURL).stdout


@pytest.mark.skipif(os.getuid() == 0, reason="root can write everywhere")
def test_a_home_that_cannot_be_written_is_no_reason_when_the_sandboxs_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.delenv("SANDBOX_AUTHORITY")
    out, errors = started(tmp_path / "project").communicate(timeout=60)
    assert TOLD in out, errors
    assert list(home.iterdir()) == []


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's bundle, for this test."""
    file = tmp_path / "bundle.crt"
    system = next((one for one in BUNDLES if os.path.exists(one)), None)
    if system is None:
        pytest.skip("no certificates here")
    shutil.copy(system, file)
    monkeypatch.setattr(trust, "BUNDLES", (str(file),))
    monkeypatch.setattr(stored_authority, "SOURCES", (str(file),))
    return file


def test_a_change_of_the_systems_certificates_is_seen_by_the_next_sandbox(
    walled: Walls, kept: Path, bundle: Path, tmp_path: Path
) -> None:
    before = walled()
    more = Path(Pki(tmp_path).file).read_text()
    with bundle.open("a") as file:
        file.write(more)
    after = walled()
    seen = [place.run("cat /etc/sandbox-ca-bundle.pem").stdout for place in (before, after)]
    assert more not in seen[0] and more in seen[1]
    for place in (before, after):  # those that run keep theirs
        assert TOLD in place.run(*CURL).stdout
    assert len(generations(kept)) == 2


def test_a_home_that_two_systems_share_has_one_for_each(walled: Walls, kept: Path, bundle: Path) -> None:
    other = bundle.with_name("other")
    shutil.copy(bundle, other)
    for _ in range(3):  # now the one starts a sandbox, now the other
        walled().close()
        bundle.rename(bundle.with_name("aside"))
        other.rename(bundle)
        bundle.with_name("aside").rename(other)
    assert len(generations(kept)) == 2


def test_a_damaged_bundle_or_generation_stops_no_start(walled: Walls, kept: Path, bundle: Path) -> None:
    with bundle.open("a") as file:
        file.write("-----BEGIN CERTIFICATE-----\nabcde\n-----END CERTIFICATE-----\n")
    assert walled().run("true").exit_code == 0
    (one,) = generations(kept)
    (kept / one / "trusted").write_text("what is this\n")
    assert walled().run("true").exit_code == 0
    assert len(generations(kept)) == 2


def test_what_is_no_longer_valid_is_renewed_and_forgotten(kept: Path) -> None:
    first = stored_authority.current()
    assert first is not None
    assert stored_authority.current().directory == first.directory  # type: ignore[union-attr]
    old = time.time() - 366 * 86400
    os.utime(f"{first.directory}/key.pem", (old, old))
    os.utime(first.directory, (old, old))
    second = stored_authority.current()
    assert second is not None and second.directory != first.directory
    assert generations(kept) == {os.path.basename(second.directory)}
