"""smolagents: what its own executors' tests ask of an executor, and a whole agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from smolagents import ChatMessage, CodeAgent, FinalAnswerTool, MessageRole, Model, tool
from smolagents.utils import AgentError

from sandbox.integrations.smolagents_executor import SandboxExecutor

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
