"""The sandboxes of one server, JSON-RPC or HTTP. `service.py` has what they share with the command line."""

from __future__ import annotations

from threading import Lock

from sandbox.config.home import home
from sandbox.errors import ConfigError
from sandbox.registry.registry import Entry, entries, find
from sandbox.registry.remove import kill
from sandbox.sandbox import Sandbox
from sandbox.service import configuration, create, merged, srt_config
from sandbox.wiring import Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sandbox.client import Client
    from sandbox.config.model import Config
    from sandbox.service import Tell


class Sandboxes:
    """The sandboxes that one server owns, and access to all others of this user. Safe to use from many threads."""

    def __init__(self, *, config_file: str | None = None, flags: Mapping[str, Any] | None = None, tell: Tell) -> None:
        """`config_file` and `flags` come from the server's own command line and apply to every sandbox it creates."""
        self._config_file = config_file
        self._flags = dict(flags or {})
        self._tell = tell
        self._own: dict[str, Sandbox] = {}
        self._most_lifetime: dict[str, tuple[float | None, float | None]] = {}
        self._lock = Lock()
        self._closed = False

    def create(self, asked: Mapping[str, Any], *, hooks: object | None = None) -> Sandbox:
        """Starts a sandbox as the server's flags and, above them, a client's parameters (`asked`) say.

        If `srt` is the only parameter, it has settings of Anthropic's sandbox-runtime, and as there no other file is
        read. Raises what `Sandbox` raises.
        """
        return self._own_one(self._start(asked, hooks))

    def restore(self, name: str, config: Mapping[str, Any], *, hooks: object | None = None) -> Sandbox:
        """Starts a sandbox from a checkpoint. Values that it does not hold, such as those of `environment.set`, come
        from the server's own layers if these have them. Raises what `Sandbox.restore` raises."""
        _refuse_gate(config)
        return self._own_one(Sandbox._restore(name, config, hooks, self._configured_in))

    def _configured_in(self, project: str) -> Config:
        return self.configured({"filesystem": {"root": project}})

    def create_restricted(
        self, asked: Mapping[str, Any], root: str, *, before: Callable[[str], object] | None = None
    ) -> Sandbox:
        """Starts a sandbox in `root` for a client who may ask for less than the server's own layers allow, not more.

        `root` is a real path that was checked: if it becomes a link later, its target is not shown. Raises Denied for a
        parameter that would allow more than the layers do, and what `Sandbox` raises. `before` is called with its id
        before it is this server's.
        """
        from sandbox.config.restricted import restricted

        said = _said(asked)
        resolved = configuration(merged(self._flags, {"filesystem": {"root": root}}), config_file=self._config_file)
        config = restricted(resolved, said, root)
        config.filesystem.root = root
        config.filesystem.settled += (root,)
        made = create(resolved, config=config, tell=self._tell)
        if before is not None:
            before(made.id)
        self._own_one(made)
        limits = resolved.config.limits
        with self._lock:
            self._most_lifetime[made.id] = limits.lifetime, limits.idle_timeout
        return made

    def most_lifetime(self, id: str) -> tuple[float | None, float | None] | None:
        """The layers' own `limits.lifetime` and `idle_timeout`, for a sandbox made by `create_restricted`."""
        with self._lock:
            return self._most_lifetime.get(id)

    def create_managed(self, config: Config) -> Sandbox:
        """Starts a sandbox with exactly that configuration, for a manager. Raises what `Sandbox` raises."""
        return self._own_one(Sandbox(config))

    def adopt(self, sandbox: Sandbox, parent: str | None = None) -> None:
        """From now on this server owns the sandbox: it ends with the server. A fork may live as long as its `parent`
        could have: the time that the parent asked for is no limit of the owner's."""
        self._own_one(sandbox)
        with self._lock:
            if parent in self._most_lifetime:
                self._most_lifetime[sandbox.id] = self._most_lifetime[parent]

    def owns(self, id: str) -> bool:
        """Whether this server owns the running sandbox of that id."""
        with self._lock:
            return id in self._own

    def forget(self, id: str) -> None:
        """The sandbox of that id is no longer this server's."""
        with self._lock:
            self._own.pop(id, None)
            self._most_lifetime.pop(id, None)

    def configured(self, said: Mapping[str, Any]) -> Config:
        """The configuration of the server's layers with `said` above them. Raises ConfigError."""
        return configuration(merged(self._flags, said), config_file=self._config_file).config

    def running(self) -> int:
        """How many running sandboxes this server owns. Those that have ended are forgotten."""
        with self._lock:
            for id in [id for id, one in self._own.items() if one._closed]:
                del self._own[id]
            return len(self._own)

    def close_all(self) -> None:
        """Ends every sandbox that this server owns; it may create others afterwards."""
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
        said = merged(self._flags, _said(asked))
        resolved = configuration(said, config_file=self._config_file)
        return create(resolved, hooks=hooks, tell=self._tell)

    def get(self, id: str) -> Sandbox | Client:
        """The sandbox with that id, which may be shortened: this server's own, or else a client attached to it.

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
        return entries(home())

    def end(self, id: str) -> None:
        """Ends a running sandbox, whoever owns it. Raises NotFound, or SandboxError when it does not run."""
        entry = self._find(id)
        with self._lock:
            own = self._own.pop(entry.id, None)
        if own is not None:
            own.close()
            return
        kill(entry)

    @staticmethod
    def _find(id: str) -> Entry:
        return find(home(), id)

    def close(self) -> None:
        """Ends every sandbox that this server created. Idempotent."""
        with self._lock:
            self._closed = True
        self.close_all()


def _said(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A client's parameters, in our spelling. Raises ConfigError."""
    from sandbox.config.dialects import from_client

    said = from_client(asked)
    _refuse_gate(said)
    return said


def _refuse_gate(said: Mapping[str, Any]) -> None:
    """A client with a gate of its own does not send this setting: see `home_gate.py`."""
    network = said.get("network")
    if isinstance(network, dict) and network.get("gate") == "client":
        raise ConfigError("this client has no gate of its own, or none for a restored sandbox", path="network.gate")
