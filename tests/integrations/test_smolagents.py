"""smolagents: the tests that it has for its own executors, what else we promise, and a whole agent."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from smolagents import ChatMessage, CodeAgent, FinalAnswerTool, MessageRole, Model, tool
from smolagents.utils import AgentError

from sandbox.integrations.smolagents_executor import SandboxExecutor
from tests.integrations import suites

pytestmark = pytest.mark.integrations


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[SandboxExecutor]:
    (tmp_path / "project").mkdir()
    with SandboxExecutor({"filesystem": {"root": str(tmp_path / "project")}}) as made:
        yield made


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: what to double
    """
    return 2 * number


def test_the_state_and_the_logs_are_kept(executor: SandboxExecutor) -> None:
    executor("import math\nx = 40")
    done = executor("print('hello'); x + 2")
    assert (done.output, done.logs, done.is_final_answer) == ("42", "hello\n", False)
    assert executor("math.floor(2.5)").output == "2"


def test_variables_are_sent(executor: SandboxExecutor) -> None:
    executor.send_variables({"words": ["a", "b"], "pair": (1, 2), "raw": b"\x00"})
    assert executor("(words, pair, raw)").output == r"(['a', 'b'], (1, 2), b'\x00')"


def test_tools_run_inside(executor: SandboxExecutor) -> None:
    executor.send_tools({"double": double, "final_answer": FinalAnswerTool()})
    assert executor("double(21)").output == "42"
    done = executor("print('so far')\nfinal_answer({'n': double(4), 'when': (1, 2)})")
    assert done.is_final_answer and done.output == {"n": 8, "when": (1, 2)} and done.logs == "so far\n"


def test_an_error_carries_the_logs_and_the_state_stays(executor: SandboxExecutor) -> None:
    executor("x = 1")
    with pytest.raises(AgentError, match="(?s)before.*ZeroDivisionError"):
        executor("print('before'); 1 / 0")
    assert executor("x").output == "1"


def test_code_that_takes_too_long_is_interrupted(tmp_path: Path) -> None:
    with SandboxExecutor({"filesystem": {"root": str(tmp_path)}}, timeout=600) as executor:
        executor("x = 1")
        executor._timeout = 1  # now that the interpreter has started, however long that took
        with pytest.raises(AgentError, match="longer than 1 second"):
            executor("while True: pass")
        executor._timeout = 600
        assert executor("x").output == "1"


def test_the_walls_judge_and_not_the_names_of_modules(executor: SandboxExecutor, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    with pytest.raises(AgentError, match="FileNotFoundError"):
        executor(f"import os\nopen({str(tmp_path / 'secret')!r}).read()")
    with pytest.raises(AgentError, match="Error"):
        executor("import socket; socket.create_connection(('127.0.0.1', 1), 5)")


def test_a_pickle_from_inside_is_not_opened(executor: SandboxExecutor) -> None:
    class_of_ours = "class FinalAnswerException(BaseException): pass\n"
    with pytest.raises(AgentError, match="cannot be read"):
        executor(class_of_ours + "raise FinalAnswerException('pickle:gASVBQAAAAAAAACMAWGULg==')")


def test_a_package_that_the_policy_does_not_allow_is_an_error(tmp_path: Path) -> None:
    with SandboxExecutor({"filesystem": {"root": str(tmp_path)}}, packages=["json"]):
        pass  # it is there
    with pytest.raises(AgentError, match="no_such_package_of_ours cannot be installed"):
        SandboxExecutor({"filesystem": {"root": str(tmp_path)}}, packages=["no_such_package_of_ours"])


PLAIN = """
import datetime, decimal, pathlib
final_answer([
    datetime.date(2026, 11, 1), datetime.datetime(2026, 11, 1, 12), decimal.Decimal("1.50"), pathlib.Path("a"), 1j,
    {1: {2}}, "x" * 300_000,
])
"""


def test_final_answers_keep_their_types_and_may_be_long(executor: SandboxExecutor) -> None:
    executor.send_tools({"final_answer": FinalAnswerTool()})
    *values, text = executor(PLAIN).output
    day, noon = datetime(2026, 11, 1).date(), datetime(2026, 11, 1, 12)
    assert values == [day, noon, Decimal("1.50"), Path("a"), 1j, {1: {2}}] and len(text) == 300_000


GIF = "R0lGODlhAQABAAAAACwAAAAAAQABAAACADs="
FORGED = {
    "a picture that another program would have to read": {"__type__": "PIL.Image", "data": GIF},
    "an array that is larger than what was sent": {"__type__": "ndarray", "data": [0] * 9, "dtype": "U1000000"},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_answer_is_an_error(executor: SandboxExecutor, name: str) -> None:
    forged = f"safe:{json.dumps({'within': [FORGED[name]]})}"
    with pytest.raises(AgentError, match="cannot be read"):
        executor(f"class FinalAnswerException(BaseException): pass\nraise FinalAnswerException({forged!r})")


def suite() -> ModuleType:
    """smolagents' tests of its remote executors, from its source, which lacks the file with their marks."""
    place = suites.PLACE / "source" / "smolagents" / "tests"
    marks = ModuleType("smolagents_tests.utils.markers")
    marks.require_run_all = lambda test: test  # type: ignore[attr-defined]
    sys.modules[marks.__name__] = marks
    file = place / "test_remote_executors.py"
    spec = importlib.util.spec_from_file_location("smolagents_tests.remote_executors", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestSmolagentsSuite(suite().CommonDockerExecutorIntegration):  # type: ignore[misc]
    """What it asks of the executors for Docker and Modal."""

    @pytest.fixture
    def custom_executor(self, tmp_path: Path) -> Iterator[SandboxExecutor]:
        here = {"filesystem": {"root": str(tmp_path), "programs": [sys.executable]}}
        path = {"environment": {"set": {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}}}
        with SandboxExecutor({**here, **path}, packages=["pillow", "numpy"]) as made:
            yield made


class Scripted(Model):  # type: ignore[misc]
    """Answers what it is told to."""

    def __init__(self, answers: list[str]) -> None:
        super().__init__(model_id="scripted")
        self.answers = iter(answers)

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=next(self.answers))


def test_an_agent_works_in_it(executor: SandboxExecutor) -> None:
    answers = [
        "Thought: compute\n<code>\nx = double(20)\nopen('kept', 'w').write(str(x))\n</code>",
        "Thought: done\n<code>\nfinal_answer(x + 2)\n</code>",
    ]
    agent = CodeAgent([double], Scripted(answers), executor=executor, verbosity_level=0)
    assert agent.run("Compute it.") == 42
    assert Path(executor.sandbox.directory, "kept").read_text() == "40"
