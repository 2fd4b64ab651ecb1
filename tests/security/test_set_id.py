"""No tenant leaves a program behind that would run with its owner's rights for whoever starts it on the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.syscalls import X86_64

WAYS = {
    "chmod": "os.chmod('f', MODE)",
    "fchmod": "os.fchmod(os.open('f', os.O_RDONLY), MODE)",
    "chmod beside a directory": "os.chmod('f', MODE, dir_fd=os.open('.', os.O_RDONLY))",
    "open": "os.open('new', os.O_CREAT | os.O_WRONLY, MODE)",
    "a file without a name": "os.open('.', os.O_TMPFILE | os.O_WRONLY, MODE)",
    "mknod": "os.mknod('new', 0o100000 | MODE)",
    "openat2": "call(437, -100, b'new', ctypes.byref((ctypes.c_uint64 * 3)(os.O_CREAT | 1, MODE, 0)), 24)",
    "fchmodat2": "call(452, -100, b'f', MODE, 0)",
    "creat": "call(85, b'new', MODE)",
    "the old open": "call(2, b'new', os.O_CREAT | 1, MODE)",
    "the old mknod": "call(133, b'new', 0o100000 | MODE, 0)",
}
HEAD = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.umask(0)
def call(*args):
    if libc.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), '')
"""


@pytest.mark.parametrize("way", WAYS)
def test_no_file_becomes_setuid(tmp_path: Path, way: str) -> None:
    if not X86_64 and way in ("creat", "the old open", "the old mknod"):
        pytest.skip("calls that only x86_64 has")
    (tmp_path / "f").write_text("")
    modes = (0o4755, 0o6755, *([0o2755] if os.geteuid() == 0 else []))
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        for mode in modes:
            code = f"{HEAD}\ntry: {WAYS[way].replace('MODE', oct(mode))}\nexcept OSError: print('refused')"
            result = sandbox.exec(["python3", "-c", code])
            assert result.stdout == "refused\n", result.stderr
    assert not [one for one in tmp_path.iterdir() if one.stat().st_mode & 0o6000]


def test_a_file_that_the_owner_writes_inside_does_not_either(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        sandbox.write_file("new", "x", mode=0o4755)
    assert not [one for one in tmp_path.iterdir() if one.stat().st_mode & 0o6000]


def test_every_other_mode_works(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        done = sandbox.exec("umask 0; mkdir d; chmod 1777 d; touch f; chmod 751 f; stat -c %a d f")
        assert done.stdout.split() == ["1777", "751"]
