"""A session on a real Jupyter kernel, where there is one inside."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import CodeSession, Sandbox
from sandbox.sessions import session as session_module


@pytest.fixture
def py(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CodeSession]:
    environment = Path(sys.executable).parents[1]  # one that has ipykernel
    monkeypatch.setenv("PATH", f"{environment}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(session_module, "GRACE", 60.0)  # a busy machine takes its time to interrupt it
    files = {"root": str(project), "allow_read": [str(environment)]}
    with Sandbox({"filesystem": files}) as sb, sb.python() as session:
        yield session


def test_the_kernel_keeps_state_shows_values_and_is_interrupted(py: CodeSession) -> None:
    assert py.run("x = 41\nx + 1").text == "42"
    assert py.run("%who").stdout.strip() == "x"  # a command of IPython's own
    assert py.run("!echo child").stdout.split() == ["child"]
    shown = py.run("from IPython.display import HTML\nHTML('<b>1</b>')").outputs[0]
    assert shown.html == "<b>1</b>" and shown.is_result
    assert py.run("1 / 0").error.name == "ZeroDivisionError"  # type: ignore[union-attr]
    assert py.run("while True: pass", timeout=0.5).timed_out
    assert py.run("x").text == "41"
    py.run("y = 'kept'")
    assert py.run("print('\u4e2d' * 3_000_000)").stdout.startswith("\u4e2d" * 1_000_000)
    long = py.run("'z' * 20_000_000")
    assert long.truncated and "20000002 characters" in (long.text or "") and py.run("y").text == "'kept'"
