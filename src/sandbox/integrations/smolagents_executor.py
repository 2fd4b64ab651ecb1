"""smolagents: a `PythonExecutor` whose code runs in a sandbox. See docs/integrations/smolagents.md.

smolagents itself sends tools and variables, as to its remote executors: as code and as JSON. Nothing that comes back
is unpickled.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Self

from smolagents.default_tools import FinalAnswerTool
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.serialization import SafeSerializer
from smolagents.utils import AgentError

from sandbox.errors import CommandError
from sandbox.sandbox import Sandbox
from sandbox.sessions.result import CodeResult

SECONDS = 120.0
OUTPUT_MOST = 100_000
PACKAGES = "/tmp/.packages"  # inside, in memory
# smolagents' own version always needs Pillow and NumPy inside. This one writes what `SafeSerializer` reads.
FINAL_ANSWER = """
def final_answer(answer=None):
    import base64, io, json
    def marked(name, data, **more):
        return {"__type__": name, "data": data, **more}
    def plain(value):
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        if isinstance(value, dict):
            if all(isinstance(key, str) for key in value):
                return {key: plain(one) for key, one in value.items()}
            return marked("dict_with_complex_keys", [[plain(k), plain(v)] for k, v in value.items()])
        if isinstance(value, list):
            return [plain(one) for one in value]
        kind = type(value)
        if kind in (tuple, set, frozenset):
            return marked(kind.__name__, [plain(one) for one in value])
        if kind is bytes:
            return marked("bytes", base64.b64encode(value).decode())
        if kind is complex:
            return {"__type__": "complex", "real": value.real, "imag": value.imag}
        origin = kind.__module__.partition(".")[0]
        if origin == "datetime" and hasattr(value, "isoformat"):
            return marked(kind.__name__, value.isoformat())
        if origin in ("decimal", "pathlib"):
            return marked("Path" if origin == "pathlib" else kind.__name__, str(value))
        if origin == "numpy" and hasattr(value, "tolist"):
            array = kind.__name__ == "ndarray" and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8
            return marked("ndarray", value.tolist(), dtype=value.dtype.name) if array else plain(value.tolist())
        if origin == "PIL" and hasattr(value, "save"):
            file = io.BytesIO()
            value.save(file, format="PNG")
            return marked("PIL.Image", base64.b64encode(file.getvalue()).decode())
        return str(value)
    class FinalAnswerException(BaseException):
        pass
    raise FinalAnswerException("safe:" + json.dumps(plain(answer)))
"""
IS_INSIDE = """
import importlib.metadata, importlib.util
bool(importlib.util.find_spec({name!r}) or list(importlib.metadata.distributions(name={name!r})))
"""
PNG = b"\x89PNG\r\n\x1a\n"
NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")  # others can be made huge: "U999999999"


class SandboxExecutor(RemotePythonExecutor):  # type: ignore[misc]
    """`CodeAgent(tools, model, executor=SandboxExecutor())`. The agent's `cleanup` closes it, or a `with` statement.

    Code may import any module that is inside: the sandbox's policy limits what it can do, not a list of names.
    """

    def __init__(
        self,
        sandbox: Sandbox | Mapping[str, Any] | None = None,
        *,
        packages: Sequence[str] = (),
        timeout: float | None = SECONDS,
        logger: AgentLogger | None = None,
    ) -> None:
        """Takes a sandbox, which stays the caller's to close, or the configuration of one of its own.

        `packages` are installed inside unless they are there already; the network policy must allow that. Raises what
        `Sandbox()` raises, and AgentError when a package cannot be installed.
        """
        super().__init__(list(packages), logger or AgentLogger(level=LogLevel.ERROR), allow_pickle=False)
        self._owns = not isinstance(sandbox, Sandbox)
        self.sandbox = sandbox if isinstance(sandbox, Sandbox) else Sandbox(sandbox)
        self._session = self.sandbox.python()
        self._timeout = timeout
        try:
            self._install(list(packages))
            self.installed_packages = list(packages)
        except BaseException:
            self.cleanup()
            raise

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Runs code; the state stays. Raises AgentError, with what was printed, when it failed or took too long."""
        try:
            done = self._session.run(code, self._timeout, max_output=OUTPUT_MOST)
        except CommandError as problem:
            raise AgentError(f"{problem}; variables and imports are gone", self.logger) from problem
        logs = done.stdout + done.stderr
        error = done.error
        if done.timed_out:
            raise AgentError(f"{logs}\nThe code ran longer than {self._timeout} seconds.", self.logger)
        if error is not None and error.name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(self._answer(error.value), logs, is_final_answer=True)
        if error is not None:
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{error.traceback}", self.logger)
        return CodeOutput(_value(done), logs, is_final_answer=False)

    def _answer(self, said: str) -> Any:
        try:
            _check(json.loads(said.removeprefix(SafeSerializer.SAFE_PREFIX)))
            return self._deserialize_final_answer(said, allow_pickle=False)
        except Exception as problem:  # whatever smolagents makes of what untrusted code wrote
            raise AgentError(f"the final answer cannot be read: {problem}", self.logger) from problem

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Sends tools inside, where they run. Raises AgentError when a package they need cannot be installed."""
        others = dict(tools)
        if type(tools.get("final_answer")) is FinalAnswerTool:
            del others["final_answer"]
            self.run_code_raise_errors(FINAL_ANSWER)
        super().send_tools(others)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs what tools need. Raises AgentError."""
        self._install(additional_imports)
        return additional_imports

    def _install(self, packages: list[str]) -> None:
        missing = [name for name in packages if not self._inside(name)]
        if missing:
            command = ["python3", "-m", "pip", "install", "--quiet", "--target", PACKAGES, "--", *missing]
            done = self.sandbox.exec(command, timeout=600)
            if not done.ok:
                reason = done.stderr.strip()[-2000:]
                hint = 'allow it with {"network": {"preset": "registries"}}'
                raise AgentError(f"{', '.join(missing)} cannot be installed ({hint}): {reason}", self.logger)
            self.run_code_raise_errors(f"import sys; {PACKAGES!r} in sys.path or sys.path.append({PACKAGES!r})")

    def _inside(self, name: str) -> bool:
        """Whether a package, or a module of that name, is inside."""
        return bool(self.run_code_raise_errors(IS_INSIDE.format(name=name)).output == "True")

    def cleanup(self) -> None:
        """Ends the interpreter, and the sandbox unless it was given. Idempotent."""
        self._session.close()
        if self._owns:
            self.sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _value(done: CodeResult) -> Any:
    """The last line's value: a picture, or its text."""
    shown = next((one for one in reversed(done.outputs) if one.is_result), None)
    if shown is not None and (picture := shown.png):
        import PIL.Image

        return PIL.Image.open(BytesIO(picture), formats=["PNG"])
    return done.text


def _check(answer: Any) -> None:
    """Raises ValueError for a value that costs more to make than to send, or that a parser other than PNG's would read.

    smolagents opens any kind of picture, and arrays of any form: what untrusted code wrote is not trusted with that.
    """
    if isinstance(answer, dict):
        kind, data = answer.get("__type__"), answer.get("data")
        if kind == "PIL.Image" and not base64.b64decode(str(data)[:12]).startswith(PNG):
            raise ValueError("a picture is a PNG")
        if kind == "ndarray" and not NUMBERS.fullmatch(str(answer.get("dtype"))):
            raise ValueError("an array holds numbers")
    for one in answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ():
        _check(one)
