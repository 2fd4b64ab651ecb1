"""Creating, finding and ending sandboxes: what the command line, JSON-RPC and other servers have in common."""

from __future__ import annotations

import os
from _thread import allocate_lock as Lock  # `threading` is loaded later: see `wiring.py`

from sandbox.config.home import home
from sandbox.errors import ConfigError, SandboxClosed
from sandbox.sandbox import Sandbox
from sandbox.wiring import Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sandbox.audit.record import Record
    from sandbox.client import Client
    from sandbox.config.layers import Resolved, Widening
    from sandbox.config.model import Config
    from sandbox.registry.registry import Entry

    Tell = Callable[[Widening], object]


SRT_PATIENCE = "1h"  # srt waits for its callback however long that takes


def configuration(said: Mapping[str, Any], *, project: str | None = None, config_file: str | None = None) -> Resolved:
    """What the user's file, `config_file`, the project's files and `said` ask for together. Raises ConfigError.

    `project` is where the project's files are; by default the `filesystem.root` of `said`, or this directory.
    """
    from sandbox.config.layers import resolve

    root = _root(said)
    if project is None and root != "." and not root.startswith(("/", "~")):
        # Relative to this directory; the layers would take it as relative to the project, which it names.
        root = f"{os.getcwd()}/{root}"
        said = merged(said, {"filesystem": {"root": root}})
    return resolve(said, project=project or root, config_file=config_file)


def srt_config(
    settings: object, *, strict: bool = False, asking: bool = False, tell: Callable[[str], None] | None = None
) -> Config:
    """Settings of Anthropic's sandbox-runtime as our configuration. Raises ConfigError with the setting's own name.

    `strict`: a closed home, as `"strict": true` in the settings. `asking`: somebody answers for hosts that are not
    listed, unless the settings are strict about those. `tell` is called with what a person should know.
    """
    from sandbox.config.dialects.srt import translate
    from sandbox.config.model import Config

    if not isinstance(settings, dict):
        raise ConfigError("must be a mapping")
    translated = translate(settings, strict=strict)
    try:
        config = Config.read(translated.data)
        if translated.masked:
            from sandbox.network.credentials.masks import put_in

            put_in(config, translated.masked, tell or (lambda line: None))
        network = settings.get("network")
        if asking and not (isinstance(network, dict) and network.get("strictAllowlist")):
            config.network = config.network.changed({"ask": True, "ask_timeout": SRT_PATIENCE})
        if config.network.allowed_hosts or config.network.denied_hosts:
            from sandbox.policy.network import NetworkPolicy

            NetworkPolicy(config.network)
        return config
    except ConfigError as problem:
        path = next((known for ours, known in translated.spelled.items() if problem.path.startswith(ours)), None)
        raise ConfigError(problem.problem, path=path or problem.path) from None


def create(
    resolved: Resolved,
    *,
    config: Config | None = None,
    hooks: object | None = None,
    command: Sequence[str] | None = None,
    agent: str | None = None,
    tell: Tell,
) -> Sandbox:
    """Starts a sandbox as the layers say, or as `config`, which was made from them, says.

    What the project's files asked for and did not get is put on the record, and `tell` is called with each. `agent` is
    whom the record names. Raises what `Sandbox` raises.
    """
    sandbox = Sandbox(config or resolved.config, hooks=hooks, command=command)
    try:
        if agent is not None:
            sandbox.record.agent = agent
        record_ignored(resolved, sandbox.record)
        for ignored in resolved.warnings:
            tell(ignored)
    except BaseException:
        sandbox.close()
        raise
    return sandbox


def record_ignored(resolved: Resolved, record: Record) -> None:
    """Puts on the record what the project's files asked for and did not get."""
    for ignored in resolved.warnings:
        record.write(
            "policy_decision",
            str(ignored),
            severity="warn",
            operation="configure",
            target=ignored.path,
            result="blocked",
            policy="project-only-tightens",
            reason=ignored.reason,
            sync=True,
        )


def pull_kill_switch(*, by: str, reason: str = "", close_own: Callable[[], object] | None = None) -> list[str]:
    """Ends every sandbox of this user and lets none start, on the record. Returns the ids of those that it ended.

    `close_own` ends those of this process. Raises SandboxError when one could not be ended; the switch stays pulled.
    """
    from sandbox.registry.kill_switch import pull

    record = _own_record()
    try:
        record.write("security_kill_switch", f"pulled by {by}", severity="critical", reason=reason or None, sync=True)
        ended = pull(home(), by=by, reason=reason, close_own=close_own)
        record.write("security_kill_switch", f"{len(ended)} sandboxes ended", severity="critical", sync=True)
    finally:
        record.close()
    return ended


def release_kill_switch(*, by: str) -> bool:
    """Lets sandboxes start again, on the record. Returns whether the switch was pulled."""
    from sandbox.registry.kill_switch import release

    if not release(home()):
        return False
    record = _own_record()
    try:
        record.write("security_kill_switch", f"released by {by}", severity="critical", sync=True)
    finally:
        record.close()
    return True


def _own_record() -> Record:
    """The record, for what is about no one sandbox."""
    from sandbox.audit.record import Record
    from sandbox.config.home import record_directory

    return Record(record_directory(configuration({}).users))


def why_closed(sandbox: Sandbox, problem: SandboxClosed) -> SandboxClosed:
    """The error to report for a sandbox that ended under its user: with the reason, if nobody closed it."""
    if not sandbox.end_reason:
        return problem
    return SandboxClosed("the sandbox has ended: {reason}", reason=sandbox.end_reason)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two layers of settings as one: sections are merged; everything else, lists too, is replaced."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def _root(said: Mapping[str, Any]) -> str:
    filesystem = said.get("filesystem")
    root = filesystem.get("root") if isinstance(filesystem, dict) else None
    return root if isinstance(root, str) else "."


class Sandboxes:
    """The sandboxes that one server owns, and a way to every other one of this user. Safe to use from many threads."""

    def __init__(self, *, config_file: str | None = None, flags: Mapping[str, Any] | None = None, tell: Tell) -> None:
        """`config_file` and `flags` are the server's own command line; they count for every sandbox it creates."""
        self._config_file = config_file
        self._flags = dict(flags or {})
        self._tell = tell
        self._own: dict[str, Sandbox] = {}
        self._most_lifetime: dict[str, tuple[float | None, float | None]] = {}
        self._lock = Lock()
        self._closed = False

    def create(self, asked: Mapping[str, Any], *, hooks: object | None = None) -> Sandbox:
        """Starts a sandbox as the server's flags and, above them, a client's parameters (`asked`) say.

        With `srt` as the only parameter, those are settings of Anthropic's sandbox-runtime, and as there no file is
        read besides. Raises what `Sandbox` raises.
        """
        return self._own_one(self._start(asked, hooks))

    def restore(self, name: str, config: Mapping[str, Any], *, hooks: object | None = None) -> Sandbox:
        """Starts a sandbox from a checkpoint. Raises what `Sandbox.restore` raises."""
        return self._own_one(Sandbox.restore(name, config, hooks=hooks))

    def create_restricted(self, asked: Mapping[str, Any], root: str) -> Sandbox:
        """Starts a sandbox in `root` for somebody who may ask for less than the server's own layers say, not for more.

        `root` is a real path that was found fit: what it leads to later, by a link, is not shown. Raises Denied for a
        parameter that would widen the layers, and what `Sandbox` raises.
        """
        from sandbox.config.dialects import from_client
        from sandbox.config.restricted import restricted

        said = from_client(asked)
        resolved = configuration(merged(self._flags, {"filesystem": {"root": root}}), config_file=self._config_file)
        config = restricted(resolved, said, root)
        config.filesystem.root = root
        config.filesystem.settled += (root,)
        made = self._own_one(create(resolved, config=config, tell=self._tell))
        limits = resolved.config.limits
        with self._lock:
            self._most_lifetime[made.id] = limits.lifetime, limits.idle_timeout
        return made

    def most_lifetime(self, id: str) -> tuple[float | None, float | None] | None:
        """The layers' own `limits.lifetime` and `idle_timeout`, for a sandbox of `create_restricted`."""
        with self._lock:
            return self._most_lifetime.get(id)

    def create_managed(self, config: Config) -> Sandbox:
        """Starts a sandbox of exactly that configuration, for a manager. Raises what `Sandbox` raises."""
        return self._own_one(Sandbox(config))

    def adopt(self, sandbox: Sandbox) -> None:
        """From now on the sandbox is this server's: it ends with it."""
        self._own_one(sandbox)

    def configured(self, said: Mapping[str, Any]) -> Config:
        """What the server's layers and, above them, `said` make. Raises ConfigError."""
        return configuration(merged(self._flags, said), config_file=self._config_file).config

    def close_all(self) -> None:
        """Ends every sandbox that this server owns; it may create others."""
        with self._lock:
            own, self._own = list(self._own.values()), {}
        for sandbox in own:
            sandbox.close()

    def _own_one(self, sandbox: Sandbox) -> Sandbox:
        with self._lock:
            self._own[sandbox.id] = sandbox
            closed = self._closed
        if closed:  # while it was being started
            self.close()
        return sandbox

    def _start(self, asked: Mapping[str, Any], hooks: object | None) -> Sandbox:
        if set(asked) == {"srt"} and not self._flags and self._config_file is None:
            from sandbox.layout.named_paths import NamedPaths

            told: list[str] = []
            asking = getattr(hooks, "on_ask", None) is not None
            config = srt_config(asked["srt"], asking=asking, tell=told.append)
            named = NamedPaths(config.filesystem)
            sandbox = Sandbox(config, hooks=hooks)
            sandbox.notices += told
            sandbox._companions[NamedPaths] = named
            return sandbox
        from sandbox.config.dialects import from_client

        said = merged(self._flags, from_client(asked))
        resolved = configuration(said, config_file=self._config_file)
        return create(resolved, hooks=hooks, tell=self._tell)

    def get(self, id: str) -> Sandbox | Client:
        """The sandbox of that id, which may be shortened: this server's own, or else a client attached to it.

        The caller closes a client. Raises NotFound, or SandboxError when it does not run.
        """
        with self._lock:
            own = self._own.get(id)
        if own is not None:
            return own
        entry = self._find(id)
        with self._lock:
            forks = [fork for one in self._own.values() for fork in one._forks]
            own = self._own.get(entry.id) or next((one for one in forks if one.id == entry.id), None)
        return own if own is not None else Wiring.attach(entry.id)

    def list(self) -> list[Entry]:
        """Every sandbox of this user, the newest first."""
        from sandbox.registry.registry import entries  # not above: `sandbox run` needs none of the registry's reading

        return entries(home())

    def end(self, id: str) -> None:
        """Ends a running sandbox, whoever owns it. Raises NotFound, or SandboxError when it does not run."""
        entry = self._find(id)
        with self._lock:
            own = self._own.pop(entry.id, None)
        if own is not None:
            own.close()
            return
        from sandbox.registry.remove import kill

        kill(entry)

    @staticmethod
    def _find(id: str) -> Entry:
        from sandbox.registry.registry import find

        return find(home(), id)

    def close(self) -> None:
        """Ends every sandbox that this server created. Idempotent."""
        with self._lock:
            self._closed = True
        self.close_all()
