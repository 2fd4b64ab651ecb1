"""The host's side of a session: starts an interpreter in a sandbox, sends it code, collects its answers.

The answers come from untrusted code: every message is bounded and checked, and its content is only ever passed on to
the caller.
"""

from __future__ import annotations

import codecs
import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib.resources import files
from threading import Event, Lock, Thread
from typing import Any, Protocol, Self

from sandbox.errors import CommandError, GuestError, InvalidArgument, SandboxClosed, SandboxError
from sandbox.protocols import Process
from sandbox.result import OUTPUT_LIMIT, Chunk, Collector, ExecResult
from sandbox.sessions.result import CodeFailure, CodeResult, RichOutput

MESSAGE_MOST = 8 * 2**20  # bytes of one message: a picture, a table
VALUES_MOST = 32 * 2**20  # bytes of all values of a run
FORMS_MOST = 32  # forms of one value
FORM_COST = 200  # bytes counted for each form besides its content
ERROR_MOST = 100_000  # characters of an error's traceback; its value may be as long as a message
NAME_MOST = 1000
OUTPUTS_MOST = 1000
GRACE = 3.0  # seconds that code has to end after it was interrupted; then its interpreter is killed

Listener = Callable[[str], object]


class Spawns(Protocol):
    """What a session needs from a sandbox, in this process or in another one."""

    def spawn(self, command: list[str]) -> Process:
        """Starts a command."""


class CodeTurn:
    """One call of `run`, from waiting to its end. Whoever gives it up stops its own code, and no other's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._abandoned = False
        self._stop: Callable[[], object] | None = None

    def begin(self, stop: Callable[[], object]) -> bool:
        """The code is sent now. Returns False if nobody wants it any more."""
        with self._lock:
            self._stop = stop
            return not self._abandoned

    def abandon(self) -> None:
        """Stops the code if it runs, and else sees to it that it never does."""
        with self._lock:
            self._abandoned = True
            if self._stop is not None:
                self._stop()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stop = None


class CodeSession(ABC):
    """An interpreter inside that keeps its state between calls to `run`. Many threads may use it; one runs at a time.

    Close it, or use it in a `with` statement; it ends with its sandbox at the latest.
    """

    def __init__(self, sandbox: Spawns) -> None:
        """Made by `Sandbox.python` and `Sandbox.session`."""
        self._sandbox = sandbox
        self._lock = Lock()
        self._process: Process | None = None
        self._chunks: Iterator[Chunk] = iter(())
        self._closed = False

    def run(
        self,
        code: str,
        timeout: float | None = None,
        *,
        max_output: int = OUTPUT_LIMIT,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        on_output: Callable[[RichOutput], object] | None = None,
    ) -> CodeResult:
        """Runs code and returns what it printed, the values to show, and the error that ended it, if one did.

        After `timeout` seconds it is interrupted, as by Ctrl-C; the state stays. Code that does not end within three
        seconds of that is killed with its interpreter, and the next call starts a new one without state. `on_stdout`,
        `on_stderr` and `on_output` are called with each piece as it comes; an exception in them ends the interpreter.

        Raises CommandError when the interpreter is missing or ended meanwhile, InvalidArgument, SandboxClosed.
        """
        return self._run_turn(CodeTurn(), code, timeout, RunningCode(max_output, on_stdout, on_stderr, on_output))

    def _run_turn(self, turn: CodeTurn, code: str, timeout: float | None, running: RunningCode) -> CodeResult:
        """`run`, by somebody who may give it up meanwhile, also before it is its turn."""
        if not isinstance(code, str):
            raise InvalidArgument("code must be text, not {kind}", kind=type(code).__name__)
        with self._lock, turn:
            if self._closed:
                raise SandboxClosed("the session is closed")
            process = self._started()
            if not turn.begin(self.interrupt):
                return running.finished()
            watch = None if timeout is None else Deadline(process, timeout)
            try:
                self._give(process, code)
                self._collect(running)
            except BaseException as problem:
                self._drop()
                if watch is not None and watch.expired and isinstance(problem, CommandError):
                    running.result.timed_out = True  # it ignored the interrupt
                    return running.finished()
                raise
            finally:
                if watch is not None:
                    watch.end()
            running.result.timed_out = watch is not None and watch.expired
            return running.finished()

    def interrupt(self) -> None:
        """Interrupts the code that runs now, as Ctrl-C would: its `run` returns with an error. The state stays.

        Does nothing when no code runs. Raises SandboxClosed.
        """
        process = self._process
        if process is not None:
            process.signal(signal.SIGINT)

    def restart(self) -> None:
        """Kills the interpreter with all that runs in it; the next `run` starts a new one. Raises nothing."""
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._drop()

    def close(self) -> None:
        """Ends the interpreter. Idempotent."""
        self._closed = True
        self.restart()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the interpreter

    def _started(self) -> Process:
        if self._process is None:
            self._process = self._start()
            self._chunks = self._process.chunks()
        return self._process

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.close()

    @abstractmethod
    def _start(self) -> Process:
        """Starts the interpreter."""

    @abstractmethod
    def _give(self, process: Process, code: str) -> None:
        """Sends it code."""

    @abstractmethod
    def _collect(self, running: RunningCode) -> None:
        """Reads its answers until the code has ended."""

    def _ended(self, running: RunningCode) -> CommandError:
        """The error for an interpreter that ended instead of answering, with what was printed until then."""
        ended = self._process.result if self._process is not None else None
        status = 1 if ended is None else ended.exit_code
        out, err = running.out.value(), running.err.value()
        result = ExecResult(exit_code=status, signal=ended.signal if ended else None, stdout=out, stderr=err)
        note = "" if ended is None else ended.note
        last = (err.decode(errors="replace").strip().splitlines() or [note])[-1][:500]
        if last:
            return CommandError(
                "the session's interpreter ended: {last}", last=last, exit_code=status or 1, result=result
            )
        return CommandError(
            "the session's interpreter ended with status {status}", status=status, exit_code=status or 1, result=result
        )


class DriverSession(CodeSession):
    """A session whose interpreter runs one of our drivers, which speaks JSON lines (`drivers/plain_python.py`)."""

    kind = ""  # which driver answered, once it has

    def __init__(self, sandbox: Spawns, command: list[str], first_line: str | None = None) -> None:
        super().__init__(sandbox)
        self._command, self._first_line = command, first_line
        self._rest = bytearray()
        self._run = ""

    def _start(self) -> Process:
        self._rest.clear()
        process = self._sandbox.spawn(self._command)
        if self._first_line is not None:
            process.write(json.dumps(self._first_line).encode() + b"\n")
        return process

    def _give(self, process: Process, code: str) -> None:
        try:
            # Every answer must have it, so that what an earlier run left behind cannot answer for a later one.
            self._run = os.urandom(16).hex()
            process.write(json.dumps({"code": code, "run": self._run}).encode() + b"\n")
        except BrokenPipeError:
            pass  # it has ended; reading will say why

    def _collect(self, running: RunningCode) -> None:
        while True:
            message = self._message(running)
            if "ready" in message:
                self.kind = str(message["ready"])[:40]
            elif message.get("run") == self._run and running.take(message):
                return

    def _message(self, running: RunningCode) -> dict[str, Any]:
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            if searched > MESSAGE_MOST:
                raise GuestError("the session's interpreter sent a message that is too long")
            chunk = next(self._chunks, None)
            if chunk is None:
                raise self._ended(running)
            if chunk.stream == "stderr":
                running.stream("stderr", chunk.data)
            else:
                self._rest += chunk.data
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        message = _parsed(line)
        if not isinstance(message, dict):
            raise GuestError("the session's interpreter sent something that is no message")
        return message


def _parsed(line: bytes) -> Any:
    """The message, or None. JSON can name half a character (a lone surrogate), which no encoder takes afterwards: a
    server that passed one on would fail. Each becomes a question mark, as in printed output."""
    try:
        message = json.loads(line)
        if b"\\ud" in line.lower():
            message = json.loads(json.dumps(message, ensure_ascii=False).encode(errors="replace"))
        return message
    except (ValueError, RecursionError):
        return None


class RunningCode:
    """One `run`, while its output comes in."""

    def __init__(
        self,
        most: int,
        on_stdout: Listener | None,
        on_stderr: Listener | None,
        on_output: Callable[[RichOutput], object] | None,
    ) -> None:
        self.result = CodeResult()
        self.out, self.err = Collector(most), Collector(most)
        self._listeners = {"stdout": on_stdout, "stderr": on_stderr}
        # What is read need not end with a whole character.
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._listeners}
        self._on_output = on_output
        self._room = VALUES_MOST

    def stream(self, name: str, data: bytes) -> None:
        """Takes output as it comes."""
        (self.out if name == "stdout" else self.err).add(data)
        self._tell(name, data)

    def _tell(self, name: str, data: bytes, last: bool = False) -> None:
        listener = self._listeners[name]
        if listener is not None and (text := self._decoders[name].decode(data, last)):
            listener(text)

    def take(self, message: dict[str, Any]) -> bool:
        """Takes one message. Returns True when the code has ended."""
        if message.get("stream") in ("stdout", "stderr") and isinstance(message.get("text"), str):
            self.stream(message["stream"], message["text"].encode(errors="replace"))
        elif isinstance(data := message.get("data"), dict):
            forms = {form: value for form, value in list(data.items())[:FORMS_MOST] if value is not None}
            self.result.truncated = self.result.truncated or message.get("truncated") is True
            self._show(RichOutput(forms, message.get("result") is True))
        elif isinstance(error := message.get("error"), dict):
            name, value, trace = (str(error.get(key, "")) for key in ("name", "value", "traceback"))
            self.result.error = CodeFailure(name[:NAME_MOST], value, trace[:ERROR_MOST])
        return message.get("done") is True

    def _show(self, output: RichOutput) -> None:
        size = sum(FORM_COST + len(form) + len(str(value)) for form, value in output.data.items())
        if size > self._room or len(self.result.outputs) >= OUTPUTS_MOST:
            self.result.truncated = True
            return
        self._room -= size
        self.result.outputs.append(output)
        if self._on_output is not None:
            self._on_output(output)

    def finished(self) -> CodeResult:
        """The result, with all that was collected."""
        for name in self._listeners:
            self._tell(name, b"", last=True)
        self.result.stdout = self.out.value().decode(errors="replace")
        self.result.stderr = self.err.value().decode(errors="replace")
        self.result.truncated = self.result.truncated or self.out.truncated or self.err.truncated
        return self.result


class Deadline:
    """Interrupts the code after some seconds, and kills its interpreter when that does not help."""

    def __init__(self, process: Process, seconds: float) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise InvalidArgument("timeout must be a number of seconds above 0, not {seconds!r}", seconds=seconds)
        self.expired = False
        self._process = process
        self._ended = Event()
        Thread(target=self._watch, args=(min(seconds, 10**8),), daemon=True).start()

    def _watch(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            return
        self.expired = True
        try:
            self._process.signal(signal.SIGINT)
            if not self._ended.wait(GRACE):
                self._process.kill()
        except (SandboxError, OSError):
            pass  # the sandbox has ended, and the code with it

    def end(self) -> None:
        """The code has ended."""
        self._ended.set()


def driver(name: str) -> str:
    """The text of a driver."""
    return (files("sandbox.sessions") / "drivers" / name).read_text(encoding="utf-8")
