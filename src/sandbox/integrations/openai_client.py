"""OpenAI Agents SDK: a client of its sandbox interface. See docs/integrations/openai-agents.md."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Any, Literal

from agents.sandbox import Manifest
from agents.sandbox.session import (
    BaseSandboxClient,
    BaseSandboxClientOptions,
    Dependencies,
    Instrumentation,
    SandboxSession,
    SandboxSessionState,
)
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot

from sandbox.integrations.openai_session import AgentSandboxSession, AgentSandboxSessionState, own_directory

DEFAULT_ROOT = Manifest.model_fields["root"].default


class AgentSandboxClientOptions(BaseSandboxClientOptions):  # type: ignore[misc]
    """What one session has besides the client's configuration."""

    type: Literal["agent-sandbox"] = "agent-sandbox"
    exposed_ports: tuple[int, ...] = ()


class AgentSandboxClient(BaseSandboxClient[AgentSandboxClientOptions | None]):  # type: ignore[misc]
    """`RunConfig(sandbox=SandboxRunConfig(client=AgentSandboxClient({...})))`.

    Without `filesystem.root` each session has an empty directory of its own, which `delete` removes.
    """

    backend_id = "agent-sandbox"
    supports_default_options = True

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        """Takes the configuration of every session's sandbox. Checked when one starts."""
        self._config = dict(config or {})
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: AgentSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """A session; entering it starts its sandbox. Paths that the manifest grants are shown inside."""
        manifest = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        ports = options.exposed_ports if options is not None else ()
        state = AgentSandboxSessionState(
            manifest=manifest, snapshot=resolve_snapshot(snapshot, "unnamed"), exposed_ports=ports
        )
        state.snapshot = resolve_snapshot(snapshot, str(state.session_id))
        project = self._project(state)
        if manifest.root == DEFAULT_ROOT:
            state.manifest = manifest.model_copy(update={"root": project}, deep=True)
        return self._session(state, _granted(manifest))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """A session with the same files, or those of its snapshot, in a new sandbox of this client's configuration.

        A stored state opens nothing: only the paths that the caller's own manifest grants again are shown.
        """
        if not isinstance(state, AgentSandboxSessionState):
            raise TypeError("AgentSandboxClient.resume expects an AgentSandboxSessionState")
        state.assert_path_grants_rebound()
        # Without the others: for them the SDK would read files of the host that the stored manifest names.
        again = tuple(one for one in state.manifest.extra_path_grants if one.host_path is not None)
        changed: dict[str, object] = {"extra_path_grants": again}
        if os.path.basename(state.manifest.root) == os.path.basename(own_directory(state)):
            # It was the session's own: of a process with another temporary directory, or of a client without a root.
            changed["root"] = self._project(state)
        # A copy: the caller may use their state again, with another client.
        state = state.model_copy(update={"manifest": state.manifest.model_copy(update=changed)})
        return self._session(state, _granted(state.manifest))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends the session's sandbox, and removes its directory unless it is yours."""
        inner = session._inner
        if not isinstance(inner, AgentSandboxSession):
            raise TypeError("AgentSandboxClient.delete expects an AgentSandboxSession")
        await inner.shutdown()
        own = own_directory(inner.state)
        if self._project(inner.state) == own:
            await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """A state that was stored."""
        return self._deserialize_session_state_payload(payload, AgentSandboxSessionState)

    # -- what the sandbox is like

    def _project(self, state: SandboxSessionState) -> str:
        given = (self._config.get("filesystem") or {}).get("root")
        return os.path.realpath(os.path.expanduser(given)) if given is not None else own_directory(state)

    def _session(self, state: AgentSandboxSessionState, granted: dict[str, list[str]]) -> SandboxSession:
        files = dict(self._config.get("filesystem") or {})
        files["root"] = self._project(state)
        for name, paths in granted.items():
            files[name] = [*files.get(name, []), *paths]
        network = dict(self._config.get("network") or {})
        network["publish"] = [*network.get("publish", []), *(f"0:{port}" for port in state.exposed_ports)]
        inner = AgentSandboxSession(state, {**self._config, "filesystem": files, "network": network})
        return self._wrap_session(inner, instrumentation=self._instrumentation)


def _granted(manifest: Manifest) -> dict[str, list[str]]:
    """The manifest's extra paths, as a configuration has them. Raises ValueError for one with another place inside."""
    granted: dict[str, list[str]] = {"allow_read": [], "allow_write": []}
    for one in manifest.extra_path_grants:
        if one.host_path is not None and os.path.normpath(one.host_path) != one.path:
            raise ValueError(f"a path is shown at its own place: {one.host_path!r} cannot be at {one.path!r}")
        if one.host_path is not None or os.path.exists(one.path):
            granted["allow_read" if one.read_only else "allow_write"].append(one.path)
    return granted
