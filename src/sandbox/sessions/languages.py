"""The interpreters that a session can have: Python (a Jupyter kernel where there is one), Node.js, TypeScript on it,
bash."""

from __future__ import annotations

import os
import shlex

from sandbox.errors import GuestError, InvalidArgument
from sandbox.protocols import Process
from sandbox.sessions.result import CodeFailure
from sandbox.sessions.session import CodeSession, DriverSession, RunningCode, Spawns, driver

KERNELS = ("auto", "jupyter", "plain")
LANGUAGES = ("python", "node", "typescript", "bash")
# The first line of its input is the driver: it is too long for a command line, where others could read it too.
BOOT = (
    "import json,os;requests=os.fdopen(os.dup(0),'rb');"
    "exec(compile(json.loads(requests.readline()),'<session>','exec'),{'__name__':'session','requests':requests})"
)
CHOICE = """
from importlib.util import find_spec
chosen = "jupyter" if {kernel!r} == "jupyter" or ({kernel!r} == "auto" and find_spec("ipykernel")) else "plain"
exec(compile({{"plain": {plain!r}, "jupyter": {jupyter!r}}}[chosen], "<session>", "exec"))
"""
# Descriptors 3 and 4 lead to and from the host, so that no child process of the code answers in its place by accident.
OWN_STREAMS = 'exec "$@" 3>&1 4<&0 >&2 </dev/null'
MARK_LENGTH = 16
STATUS_MOST = 32  # bytes between the mark and the end of its line


def open_session(sandbox: Spawns, language: str, kernel: str = "auto") -> CodeSession:
    """A session of that language; its interpreter starts with the first code. Raises InvalidArgument."""
    if kernel not in KERNELS:
        raise InvalidArgument("unknown kernel {kernel!r}; known: {all}", kernel=kernel, all=", ".join(KERNELS))
    if language == "python":
        plain, jupyter = (driver("fitting.py") + driver(name) for name in ("plain_python.py", "jupyter_python.py"))
        text = CHOICE.format(kernel=kernel, plain=plain, jupyter=jupyter)
        return DriverSession(sandbox, ["python3", "-u", "-c", BOOT], text)
    if language in ("node", "typescript"):
        command = ["/bin/sh", "-c", OWN_STREAMS, "sh", "node", "-e", driver("node.js"), language]
        return DriverSession(sandbox, command)
    if language == "bash":
        return BashSession(sandbox)
    raise InvalidArgument("unknown language {language!r}; known: {all}", language=language, all=", ".join(LANGUAGES))


class BashSession(CodeSession):
    """A bash that keeps its directory, variables and functions. Code that ends with a status above 0 has failed."""

    def _start(self) -> Process:
        process = self._sandbox.spawn(["bash", "--noprofile", "--norc"])
        process.write(b"trap : INT\n")  # an interrupt ends the running command, not the shell
        return process

    def _give(self, process: Process, code: str) -> None:
        # Both outputs end with a random mark, so that the result has all that was printed before it.
        self._mark = os.urandom(MARK_LENGTH).hex().encode()
        mark = self._mark.decode()
        text = f"eval {shlex.quote(code)} </dev/null\nprintf '\\n%s %d\\n' {mark} $? ; printf '\\n%s \\n' {mark} >&2\n"
        try:
            process.write(text.encode(errors="surrogateescape"))
        except BrokenPipeError:
            pass  # it has ended; reading will say why

    def _collect(self, running: RunningCode) -> None:
        pending = {"stdout": bytearray(), "stderr": bytearray()}
        ended: dict[str, bytes] = {}
        mark = b"\n" + self._mark + b" "
        while len(ended) < 2:
            chunk = next(self._chunks, None)
            if chunk is None:
                for name, rest in pending.items():
                    running.stream(name, bytes(rest))
                raise self._ended(running)
            rest = pending[chunk.stream]
            rest += chunk.data
            at = rest.find(mark)
            if at >= 0 and len(rest[at + len(mark) :].partition(b"\n")[0]) > STATUS_MOST:
                raise GuestError("the session's interpreter sent a message that is too long")
            if at < 0:  # keeps back what may be the beginning of the mark
                ready = max(0, len(rest) - len(mark))
            elif b"\n" not in rest[at + len(mark) :]:
                ready = at
            else:
                ready = at
                ended[chunk.stream] = bytes(rest[at + len(mark) :]).split(b"\n")[0]
            if ready:
                running.stream(chunk.stream, bytes(rest[:ready]))
                del rest[:ready]
        status = int(ended["stdout"]) if ended["stdout"].isdigit() else 1
        if status:
            running.result.error = CodeFailure("ExitStatus", str(status), "")
