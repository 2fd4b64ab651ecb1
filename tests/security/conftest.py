from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox import ExecResult, Sandbox

Probe = Callable[[str], ExecResult]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


@pytest.fixture
def sandbox(project: Path) -> Iterator[Sandbox]:
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        yield sandbox


@pytest.fixture
def probe(sandbox: Sandbox) -> Probe:
    """Runs Python code as a tenant; `libc` and `syscall(number, …) -> errno or 0` are at hand."""
    prelude = textwrap.dedent(
        """
        import ctypes, errno, os, sys, socket
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        def syscall(*args):
            ctypes.set_errno(0)
            answer = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
            return errno.errorcode[ctypes.get_errno()] if answer < 0 else "allowed"
        """
    )
    return lambda code: sandbox.exec(["/usr/bin/python3", "-c", prelude + textwrap.dedent(code)])
