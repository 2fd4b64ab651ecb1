"""A pytest plugin: the fixtures `sandbox`, `sandbox_config` and `sandbox_factory`, and `--sandbox`, which runs a whole
session in one. See docs/integrations/pytest.md.

pytest loads this wherever we are installed, so no other module of this package is imported before a test asks for a
sandbox.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

MARK = "sandbox"
OPTION = "--sandbox"
INSIDE = "SANDBOX_PYTEST_INSIDE"  # set in the session inside, where `--sandbox` in a project's settings has no effect
# Read now: plugins such as pytest-env set variables that the project's settings name, before any hook of ours runs.
_IS_INSIDE = INSIDE in os.environ


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup(MARK).addoption(
        OPTION, action="store_true", dest="whole_in_sandbox", help="run the whole session in a sandbox"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """Runs before any conftest.py is imported, so that the project's code is imported inside. Raises SystemExit.

    As a wrapper it comes before the plugins that import what the project's settings name (pytest-django), and before
    pytest holds back what is printed.
    """
    given = _given(early_config)
    # Also looked for by itself: a project's settings come first, and `addopts = --` would make it the name of a file.
    if (early_config.known_args_namespace.whole_in_sandbox or OPTION in given) and not _IS_INSIDE:
        raise SystemExit(_session_inside(early_config, [word for word in given if word != OPTION]))
    return (yield)


def _given(config: pytest.Config) -> list[str]:
    """What the person asked pytest for: in the environment, and on the command line."""
    asked = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    return [*asked, *(str(word) for word in config.invocation_params.args)]


def _session_inside(config: pytest.Config, given: list[str]) -> int:
    from sandbox.errors import SandboxError
    from sandbox.i18n import _
    from sandbox.result import Chunk
    from sandbox.sandbox import Sandbox
    from sandbox.vfs.review import printable

    here, root = config.invocation_params.dir, config.rootpath
    root = root if here.is_relative_to(root) else here
    _refuse_what_ran_already(root)
    colour = ["--color=yes"] if sys.stdout.isatty() and not any(one.startswith("--color") for one in given) else []
    command = [sys.executable, "-m", "pytest", *given, *colour]
    files: dict[str, Any] = {"root": str(root), "programs": [sys.executable]}
    package = Path(__file__).parents[1]
    if not package.is_relative_to(sys.prefix):  # an editable install
        files["allow_read"] = [str(package)]
    outputs = {"stdout": sys.stdout, "stderr": sys.stderr}
    code = 1
    try:
        with Sandbox({"filesystem": files}) as sandbox:
            for notice in sandbox.notices:
                print(f"sandbox: {printable(_.text(notice))}", file=sys.stderr)
            for piece in sandbox.exec_stream(command, str(here), env={INSIDE: "1"}):
                if isinstance(piece, Chunk):
                    outputs[piece.stream].buffer.write(piece.data)
                    outputs[piece.stream].flush()
                else:
                    code = piece.exit_code
    except SandboxError as problem:
        raise pytest.UsageError(f"--sandbox: {problem}") from problem
    return code


def _refuse_what_ran_already(root: Path) -> None:
    """Raises UsageError for code that ran outside: `-p NAME` in a project's settings imports it before our hook."""
    root = root.resolve()
    own = {Path(__file__).resolve().parent, Path(sys.prefix).resolve()}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        path = Path(file).resolve() if isinstance(file, str) and file else None  # `../venv/bin/pytest` is elsewhere
        if path and path.is_relative_to(root) and not any(path.is_relative_to(one) for one in own):
            raise pytest.UsageError(
                f"--sandbox: {name} of the project was imported before there was a sandbox; use `sandbox run -- pytest`"
            )


def pytest_report_header() -> str | None:
    """Says where a session of `--sandbox` runs."""
    return "sandbox: this whole session runs in one" if _IS_INSIDE else None


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known to `--strict-markers`."""
    config.addinivalue_line("markers", f"{MARK}(config): what the `sandbox` fixture of this test is configured with")


@pytest.fixture
def sandbox_config() -> Mapping[str, Any]:
    """The configuration of every sandbox here: override it in a conftest.py, a module or a class."""
    return {}


@pytest.fixture
def sandbox_factory(
    request: pytest.FixtureRequest, tmp_path: Path, sandbox_config: Mapping[str, Any]
) -> Iterator[Callable[..., Sandbox]]:
    """`sandbox_factory(config)` starts another sandbox; all of them end with the test.

    Its project is a new directory in `tmp_path`, unless `filesystem.root` names one.
    """
    marks = [_of_mark(*mark.args, **mark.kwargs) for mark in request.node.iter_markers(MARK)]
    with ExitStack() as all_of_them:

        def start(config: Mapping[str, Any] | None = None) -> Sandbox:
            from sandbox.sandbox import Sandbox

            whole: dict[str, Any] = {}
            for part in (sandbox_config, *reversed(marks), config or {}):  # the nearest mark comes first in pytest
                whole = merged(whole, part)
            if "root" not in whole.get("filesystem", {}):
                whole = merged(whole, {"filesystem": {"root": str(_new_directory(tmp_path))}})
            return all_of_them.enter_context(Sandbox(whole))

        yield start


@pytest.fixture
def sandbox(sandbox_factory: Callable[..., Sandbox]) -> Sandbox:
    """A sandbox of this test's own, around an empty directory: `sandbox.exec(...)`, `sandbox.python()` …"""
    return sandbox_factory()


def _of_mark(config: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The argument of `@pytest.mark.sandbox`; any other one is a TypeError instead of a wall that is not there."""
    return config or {}


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both: mappings are merged, everything else is replaced, as between the layers of a configuration."""
    whole = dict(under)
    for key, value in over.items():
        below = whole.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        whole[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return whole


def _new_directory(place: Path) -> Path:
    number = 0
    while True:
        made = place / f"sandbox-{number}"
        try:
            made.mkdir()
        except FileExistsError:
            number += 1
        else:
            return made
