"""One sandbox for one session of Claude Code, and the proof that its commands run there.

    ~/.sandbox/hook/
        sessions/<key>/vm            the id of the sandbox that the session's commands run in
        sessions/<key>/calls/<name>  a command that was checked and has not run yet: its hash
        sessions/<key>/broken        a command of this session ran outside: all further ones are blocked
        proved/<fingerprint>         this Claude Code, with these settings, ran what the hook answered

The hook's answer replaces the command (`updatedInput`). Some versions of Claude Code silently drop it, as do all when
another hook answers too; the original command would then run on the host, already approved. So only `true` is approved
until a replaced command has arrived here, and if a later one does not arrive, all further commands of the session are
blocked.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

from sandbox.config.home import home
from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandbox.config.layers import Resolved, Widening
    from sandbox.config.model import Config
    from sandbox.host_process import ProcessHandle
    from sandbox.registry.detach import Background

IDLE = 6 * 3600.0  # seconds without a command after which the sandbox ends; the next command starts another
_STARTING = 10.0  # seconds
_SHELL_NAMES = ("sh", "dash", "bash", "zsh", "ksh", "busybox")


class HookSession:
    """The state of one session of Claude Code in one project."""

    def __init__(self, key: str) -> None:
        if len(key) != 32 or not set(key) <= set("0123456789abcdef"):
            raise SandboxError("invalid session key")
        self.key = key
        self.path = f"{home()}/hook/sessions/{key}"

    @classmethod
    def of(cls, call: dict[str, Any], project: str) -> HookSession:
        """The session of a call. Raises SandboxError if the call does not name it."""
        if not isinstance(call.get("session_id"), str) or not call["session_id"]:
            raise SandboxError("the hook's input has no session id")
        whole = "\0".join((call["session_id"], os.path.realpath(project)))
        return cls(hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:32])

    # -- the sandbox

    def ready(self, resolved: Resolved, agent: str | None) -> None:
        """Returns when the session's sandbox runs. Raises SandboxError with the reason if it cannot start."""
        import fcntl

        os.makedirs(f"{self.path}/calls", 0o700, exist_ok=True)
        lock = os.open(f"{self.path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._runs():
                from sandbox.registry.detach import start

                watched = agents_process()
                status, text = start(lambda background: _own(resolved, agent, background, watched, self, lock))
                if status != 0:
                    raise SandboxError("cannot start this session's sandbox: {text}", text=text)
                _write(f"{self.path}/vm", text)
        finally:
            os.close(lock)

    def _runs(self) -> bool:
        from sandbox.errors import NotFound
        from sandbox.registry.api import get_vm

        try:
            return get_vm(self.vm()).running
        except (NotFound, OSError):
            return False

    def vm(self) -> str:
        """The id of the sandbox. Raises OSError when there is none."""
        with open(f"{self.path}/vm", encoding="ascii") as file:
            return file.read().strip()

    def end(self) -> None:
        """Ends the sandbox and forgets the session."""
        from sandbox.errors import NotFound
        from sandbox.registry.api import kill_vm

        try:
            kill_vm(self.vm())
        except (NotFound, SandboxError, OSError):
            pass  # it has ended by itself
        self.forget()

    def forget(self) -> None:
        """Deletes the state of the session."""
        from sandbox.config.rmtree import remove_tree

        try:
            remove_tree(self.path)
        except OSError:
            pass

    # -- calls: checked, then run, each once

    def expect(self, name: str, command: str, proof: str) -> None:
        """Notes a checked command. It will run under this name, which proves that it was replaced."""
        _write(f"{self.path}/proof", os.path.basename(proof))
        _write(f"{self.path}/calls/{_safe(name)}", _hash(command))

    def take(self, name: str, command: str) -> None:
        """Notes that it runs now. Raises SandboxError if it is not the command that was checked, or has run already."""
        file = f"{self.path}/calls/{_safe(name)}"
        try:
            with open(file, encoding="ascii") as expected:
                same = expected.read() == _hash(command)
            os.unlink(file)
        except OSError:
            same = False
        if not same:
            raise SandboxError("the hook has not checked this command, so it is not run")
        os.utime(f"{self.path}/vm")
        with open(f"{self.path}/proof", encoding="ascii") as proof:
            prove(proof.read())

    def missed(self, name: str, ran: dict[str, Any]) -> bool:
        """Whether a command that Claude Code reports as run, with this input, never ran here."""
        import time

        if self._is_replaced(str(ran.get("command"))):
            return False  # the replaced command, though it may have ended before it arrived here
        until = time.monotonic() + (_STARTING if ran.get("run_in_background") else 0)
        while os.path.exists(f"{self.path}/calls/{_safe(name)}"):
            if time.monotonic() >= until:
                return True
            time.sleep(0.05)  # a background command is reported before it has started
        return False

    def _is_replaced(self, line: str) -> bool:
        """Whether it is a command as the hook answers, and nothing besides: an agent can write most of it itself."""
        import shlex

        from sandbox.cli.hook_settings import program

        try:
            words = shlex.split(line)
        except ValueError:
            return False
        expected = [*program(), "hook", "exec", self.key]
        return words[:-3] == expected and words[-2] == "--" and shlex.join(words) == line

    @property
    def broken(self) -> bool:
        return os.path.exists(f"{self.path}/broken")

    def spoil(self) -> None:
        """Notes that a command ran outside the sandbox."""
        _write(f"{self.path}/broken", "")


def proof(call: dict[str, Any], project: str) -> str:
    """The file that proves that this Claude Code, with these settings, runs what the hook answers."""
    from sandbox.cli.hook_settings import claude_settings

    seen: list[object] = [os.environ.get("AI_AGENT") or call.get("session_id"), sys.executable]
    for settings in claude_settings(project):
        seen += [settings[key] for key in ("hooks", "enabledPlugins", "disableAllHooks") if key in settings]
    return f"{proofs()}/{_hash(json.dumps(seen, sort_keys=True))[:32]}"


def proofs() -> str:
    return f"{home()}/hook/proved"


def prove(name: str) -> None:
    os.makedirs(proofs(), 0o700, exist_ok=True)
    _write(f"{proofs()}/{os.path.basename(name)}", "")


def agents_process() -> int:
    """Claude Code itself: the nearest parent process that is not a shell."""
    from sandbox.host_process import parent_and_program

    pid = os.getppid()
    for _step in range(4):
        try:
            parent, name = parent_and_program(pid)
        except (OSError, ValueError):
            return pid
        if name not in _SHELL_NAMES or parent <= 1:
            return pid
        pid = parent
    return pid


def _own(
    resolved: Resolved, agent: str | None, background: Background, watched: int, session: HookSession, lock: int
) -> int:
    """Owns the sandbox until Claude Code ends, the sandbox is killed, or no command has run for a long time."""
    from sandbox.cli.run import tell_ignored
    from sandbox.host_process import ProcessHandle
    from sandbox.service import create

    os.close(lock)
    claude = ProcessHandle(watched)
    _with_agent(resolved.config, agent, resolved.config.filesystem.root)
    ignored: list[Widening] = []
    with create(resolved, command=["claude-code"], agent=agent or "claude-code", tell=ignored.append) as sandbox:
        background.print_to(sandbox.log)
        for one in ignored:
            tell_ignored(one)
        ended, tell = os.pipe()
        sandbox.on_event(lambda event: os.write(tell, b".") if _stopped(event) else None)
        background.started(sandbox.id)
        _wait(claude, ended, session)
    if claude.ended:
        session.forget()  # Claude Code has ended, perhaps without telling the hook
    return 0


def _stopped(event: dict[str, Any]) -> bool:
    details = event.get("lifecycle")
    return isinstance(details, dict) and details.get("state") == "stopped"


def _wait(claude: ProcessHandle, ended: int, session: HookSession) -> None:
    import time

    left = IDLE
    while left > 0 and not claude.wait(min(left, 600), wake=ended):
        try:
            left = os.stat(f"{session.path}/vm").st_mtime + IDLE - time.time()
        except OSError:
            return  # the session was ended


def _with_agent(config: Config, agent: str | None, project: str) -> None:
    if agent is not None:
        from sandbox.cli.agent import guard, project_onto_walls
        from sandbox.config.agents import find

        project_onto_walls(config, guard(find(project, agent), config))


def _safe(name: str) -> str:
    return _hash(name)[:32]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def execute(key: str, name: str, command: str) -> int:
    """Runs a checked command in its session's sandbox, on our own streams; returns its exit status."""
    from sandbox.cli.remote import piped
    from sandbox.client import attach
    from sandbox.errors import NotFound

    session = HookSession(key)
    session.take(name, command)
    try:
        client = attach(session.vm())
    except (NotFound, OSError) as problem:
        raise SandboxError("the session's sandbox has ended; try again") from problem
    with client:
        shell = "bash" if os.path.exists("/bin/bash") else "sh"
        return piped(client, [shell, "-c", command], os.getcwd(), {})
