"""What sandboxes changed in overlay projects. Changes of an ended sandbox are kept until applied or discarded."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import get, post
from litestar.params import Parameter

from sandbox.config.home import home
from sandbox.errors import NotFound, SandboxError
from sandbox.registry.registry import Entry
from sandbox.rpc.methods import _change
from sandbox.running_changes import apply_changes, changes_of
from sandbox.server.refusal import Refusal
from sandbox.server.routes.sandboxes import entry_of
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.shapes import Done, Paths
from sandbox.vfs.review import unified
from sandbox.vfs.workspace import Workspace

Changed = Annotated[str, Parameter(min_length=1, max_length=4096, description="a changed path")]


def _workspace(server: Server, access: Access, id: str) -> tuple[Entry, Workspace]:
    entry = entry_of(server, access, id)
    return entry, Workspace.find(home(), entry.id, ended=not entry.running)


@get("/v1/sandboxes/{id:str}/changes", opt={"verb": "files"})
async def changes(server: Server, access: Access, id: str) -> dict[str, Any]:
    """What differs from the host's files."""
    found = await server.run(lambda: changes_of(*_workspace(server, access, id)))
    return {"changes": [_change(one) for one in found]}


@get("/v1/sandboxes/{id:str}/diff", opt={"verb": "files"})
async def diff(server: Server, access: Access, id: str, path: Changed) -> dict[str, Any]:
    """One change as a unified diff, escaped; empty when it is not text."""

    def look() -> dict[str, Any]:
        entry, workspace = _workspace(server, access, id)
        for change in changes_of(entry, workspace):
            if change.path == path:
                return {"path": path, "kind": change.kind, "diff": "\n".join(unified(workspace, change))}
        raise NotFound("nothing changed at {path}", path=path)

    return await server.run(look)


@post("/v1/sandboxes/{id:str}/apply", opt={"verb": "apply"}, status_code=200)
async def apply(server: Server, access: Access, id: str, data: Paths) -> dict[str, Any]:
    """Applies changes to the host's files. 409 when some were refused; its `data` lists the refused and the applied."""
    done = await server.run(lambda: apply_changes(*_workspace(server, access, id), data.paths, data.overwrite))
    refused = [{"path": path, "reason": str(reason)} for path, reason in done.refused]
    if refused:
        told = {"applied": done.applied, "refused": refused}
        raise Refusal(409, "not_applied", f"{len(refused)} changes were not applied", data=told)
    return {"applied": done.applied, "refused": []}


@post("/v1/sandboxes/{id:str}/discard", opt={"verb": "apply"}, status_code=200)
async def discard(server: Server, access: Access, id: str, data: Paths) -> Done:
    """Discards the changes at or below `paths`; without `paths`, all changes of a sandbox that has ended."""

    def throw() -> None:
        entry = entry_of(server, access, id)
        if data.paths is not None:
            return Workspace.find(home(), entry.id, ended=not entry.running).discard(data.paths)
        if entry.running:
            raise SandboxError("{id} is running; stop it first: `sandbox kill {id}`", id=entry.id)
        Workspace.find(home(), entry.id, ended=True).discard()

    await server.run(throw)
    return Done()


ROUTES = [changes, diff, apply, discard]
