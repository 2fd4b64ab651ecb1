"""Opening below a directory while names change."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import sys
from pathlib import Path

import pytest

from sandbox.config import openat2 as module

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has openat2")


def test_a_path_that_is_renamed_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's answer is made here: no rename can be timed so that it is given every time."""
    calls = itertools.count()

    def always_again(*_: object) -> int:
        assert next(calls) < 100_000, "tries without end"
        ctypes.set_errno(errno.EAGAIN)
        return -1

    monkeypatch.setattr(module, "_syscall", always_again)
    with pytest.raises(OSError) as problem:
        module.openat2(0, b"name", os.O_RDONLY, 0, module.BENEATH)
    assert problem.value.errno == errno.EAGAIN


def test_one_rename_meanwhile_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("content")
    real, answers = module._syscall, iter([errno.EAGAIN, errno.EINTR])

    def at_last(*arguments: object) -> int:
        number = next(answers, None)
        if number is None:
            return int(real(*arguments))
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(module, "_syscall", at_last)
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with open(module.openat2(root, b"file", os.O_RDONLY, 0, module.BENEATH)) as opened:
            assert opened.read() == "content"
    finally:
        os.close(root)
