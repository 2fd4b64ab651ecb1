"""The surface that programs build on. A change here is a change for them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandbox
from tests.api import signatures

PINNED = Path(__file__).parent / "api" / "signatures.txt"
#: Names that were public once and are internal: no exported class has them.
INTERNAL = {"begin", "judge", "line", "made", "null", "open_file", "read_pieces", "undone", "vigil", "write_pieces"}


def test_the_package_exports_exactly_what_is_listed() -> None:
    assert sorted(sandbox.__all__) == sandbox.__all__
    for name in sandbox.__all__:
        assert getattr(sandbox, name).__module__.startswith("sandbox."), name
    assert set(sandbox._HOMES) == set(sandbox.__all__)


def test_names_and_signatures_are_those_that_are_pinned() -> None:
    """Changed on purpose? `.venv/bin/python -m tests.api.signatures > tests/api/signatures.txt`, and the changelog."""
    assert signatures.surface() == PINNED.read_text(encoding="utf-8")


def documented() -> Iterator[Any]:
    for name in sandbox.__all__:
        public = getattr(sandbox, name)
        yield pytest.param(public, id=name)
        if inspect.isclass(public):
            for member in sorted(signatures.public_names(public)):
                value = inspect.getattr_static(public, member)
                value = getattr(value, "__func__", value)
                if inspect.isfunction(value) or isinstance(value, property):
                    yield pytest.param(value, id=f"{name}.{member}")


@pytest.mark.parametrize("public", list(documented()))
def test_it_is_documented(public: Any) -> None:
    assert public.__doc__ and public.__doc__.strip().rstrip('"').endswith((".", ")", ":"))


@pytest.mark.parametrize("kind", [sandbox.Sandbox, sandbox.AsyncSandbox, sandbox.Client])
def test_every_method_that_can_fail_says_what_it_raises(kind: type) -> None:
    cannot = {"close", "on_event", "processes"}  # they raise nothing of ours
    for name in signatures.public_names(kind):
        value = inspect.getattr_static(kind, name)
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function) and name not in cannot:
            assert re.search(r"[Rr]aises\s", function.__doc__ or ""), f"{kind.__name__}.{name}"


def test_internals_are_private() -> None:
    for name in sandbox.__all__:
        public = getattr(sandbox, name)
        if inspect.isclass(public):
            assert not signatures.public_names(public) & INTERNAL, name


def test_importing_the_package_loads_almost_none_of_it() -> None:
    code = "import sys, sandbox; print([name for name in sys.modules if name.startswith('sandbox.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "['sandbox.wiring']\n"  # two names, and no import of its own


def test_all_errors_are_one_family() -> None:
    from sandbox import errors

    raised = [one for one in inspect.getmembers(errors, inspect.isclass) if issubclass(one[1], BaseException)]
    for name, error in raised:
        assert issubclass(error, errors.SandboxError), name
        assert name in (errors.__doc__ or ""), f"{name} is missing from the tree"
    assert issubclass(sandbox.RpcError, sandbox.SandboxError)


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", sandbox.__version__)


def test_the_specifications_names_are_aliases() -> None:
    assert sandbox.list_vms is sandbox.list_sandboxes
    assert sandbox.get_vm is sandbox.get_sandbox
    assert sandbox.kill_vm is sandbox.kill_sandbox
