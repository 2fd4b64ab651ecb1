"""The surface that programs build on. A change here is a change for them."""

from __future__ import annotations

import inspect
import subprocess
import sys

import sandbox


def test_the_package_exports_exactly_what_is_listed() -> None:
    assert sorted(sandbox.__all__) == sandbox.__all__
    for name in sandbox.__all__:
        assert getattr(sandbox, name).__module__.startswith("sandbox."), name
    assert set(sandbox._HOMES) == set(sandbox.__all__)


def test_every_public_name_and_method_is_documented() -> None:
    for name in sandbox.__all__:
        public = getattr(sandbox, name)
        assert public.__doc__, name
        if inspect.isclass(public):
            for method, function in inspect.getmembers(public, inspect.isfunction):
                if not method.startswith("_") and function.__module__.startswith("sandbox.sandbox"):
                    assert function.__doc__, f"{name}.{method}"


def test_importing_the_package_loads_none_of_it() -> None:
    code = "import sys, sandbox; print([name for name in sys.modules if name.startswith('sandbox.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "['sandbox.wiring']\n"  # two names, and no import of its own


def test_every_error_of_ours_is_one_family() -> None:
    from sandbox import errors

    for name, error in inspect.getmembers(errors, inspect.isclass):
        assert issubclass(error, errors.SandboxError), name
        assert name in (errors.__doc__ or ""), f"{name} is missing from the tree"
