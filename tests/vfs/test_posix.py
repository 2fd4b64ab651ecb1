"""File-system checks that nobody here wrote, on directories that we serve.

Neither pjdfstest nor fsx is packaged by Debian, PyPI or npm. What is: CPython's own regression tests of its file
modules (libpython3-testsuite), stress-ng's file-system stressors with `--verify`, and fio's verified random I/O.

Excused on a MemoryProvider: stress-ng's `revio`, which makes a 1 GiB hole (holes count).
Excused on FUSE: `test_glob`'s `test_selflink`. It follows up to 40 links on one path, the most the kernel allows, and
the kernel counts those again that it followed before a name's time in the cache ran out: ELOOP, now and then.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.vfs.conftest import Writeback

pytestmark = [
    pytest.mark.walls,
    pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="/dev/fuse cannot be opened here"),
]

PYTHON = "/usr/bin/python3"
MODULES = (
    "test_os test_shutil test_tempfile test_pathlib test_mmap test_fcntl test_file test_fileio test_glob "
    "test_genericpath test_posixpath test_mailbox test_zipfile test_filecmp test_fileinput test_dbm test_shelve "
    "test_unicode_file test_bufio test_posix test_tarfile"
)
STRESSORS = (
    "access chdir chmod copy-file dentry dir dirdeep fcntl filename flock fstat getdent hdd iomix io link lockf "
    "locka lockofd mknod mmap open readahead rename seek sendfile symlink sync-file touch utime xattr fallocate fpunch"
)


class Hooks:
    def after_open(self, path: str, flags: int) -> None: ...


@pytest.fixture(
    params=["own provider", "hooked overlay", pytest.param("hooked host directory", marks=pytest.mark.soak)]
)
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sandbox]:
    for name in ("project", "base"):
        (tmp_path / name).mkdir()
    base = {"type": "real_fs", "host_path": str(tmp_path / "base")}
    mount = {
        "own provider": Writeback(),
        "hooked host directory": base,
        "hooked overlay": {"type": "overlay", "lower": base},
    }[request.param]
    config = {"filesystem": {"root": str(tmp_path / "project")}, "vfs": {"mounts": {"/w": mount}}}
    with Sandbox(config, hooks=None if request.param == "own provider" else Hooks()) as sandbox:
        yield sandbox


def test_cpythons_own_tests_of_its_file_modules_pass(sandbox: Sandbox) -> None:
    if sandbox.exec([PYTHON, "-c", "import test.test_os"]).exit_code:
        pytest.skip("libpython3-testsuite is not installed")
    result = sandbox.exec(f"cd /w && exec {PYTHON} -m test --tempdir /w -q -i test_selflink {MODULES}", timeout=400)
    assert result.exit_code == 0, result.stdout[-3000:]


@pytest.mark.skipif(shutil.which("stress-ng") is None, reason="stress-ng is not installed")
def test_stress_ng_finds_nothing_wrong(sandbox: Sandbox) -> None:
    script = f"""
        mkdir /w/s && for s in {STRESSORS}; do
            stress-ng --temp-path /w/s --verify --$s 1 --$s-ops 50 -t 1 2>&1 | grep -e fail: && echo in $s
        done; ls /w/s
    """
    assert sandbox.exec(script, timeout=400).stdout == ""


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_reads_back_what_it_wrote_in_any_order(sandbox: Sandbox) -> None:
    common = "--directory=/w --size=8m --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal"
    for options in (
        "--name=psync --rw=randwrite --bsrange=512-64k --ioengine=psync",
        "--name=mmap --rw=randwrite --bs=4k --ioengine=mmap",
        "--name=threads --rw=randwrite --bs=16k --ioengine=psync --numjobs=4 --thread --fsync=20",
    ):
        result = sandbox.exec(f"fio {common} {options}", timeout=200)
        assert result.exit_code == 0, result.stdout[-1000:] + result.stderr[-1000:]
