"""The sandbox that a request from an E2B client is for, and the user and paths it names there."""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

from litestar import Request

from sandbox.client import Client
from sandbox.errors import SandboxError
from sandbox.rpc import messages as m
from sandbox.server.e2b import endings
from sandbox.server.e2b.credentials import SURFACE
from sandbox.server.e2b.hosts import addressed, whole_id
from sandbox.server.e2b.refusals import E2bRefusal, gone
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server

USER, HOME = "user", "/home/user"


def opt(verb: str) -> dict[str, str]:
    """The options of a route that E2B's clients use in a sandbox."""
    return {"verb": verb, "surface": SURFACE}


async def running(server: Server, access: Access, id: str, *, wakes: bool = True) -> Reached:
    """The running sandbox with exactly that id. `wakes`: resumes a paused one, if its client asked for that.

    Raises E2bRefusal, also when the token may not reach it.
    """
    if not whole_id(id):
        raise gone()
    known = server.reach.known(id)
    if known is None:
        try:
            known = await server.run(lambda: server.reach.get(id, access))
        except SandboxError:
            raise gone() from None
    if known.id != id or not access.reaches(known.id, known.name):
        raise gone()
    if not known.walled and not access.may("host"):
        raise E2bRefusal(403, "this sandbox has no walls, and the token has no scope 'host'")
    if known.paused and wakes:
        await endings.wake(server, known)
    if known.paused:
        raise gone()
    return known


async def there(server: Server, access: Access, request: Request[Any, Any, Any], *, wakes: bool = True) -> Reached:
    """The running sandbox that the request is for. Raises E2bRefusal."""
    return await running(server, access, addressed(request.scope), wakes=wakes)


def user_of(request: Request[Any, Any, Any]) -> str:
    """The user inside that the request names, as "Authorization: Basic" without a password; "" when it names none."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        name, _, _ = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise E2bRefusal(401, "the user is not readable") from None
    return name


def check_user(reached: Reached, name: str) -> None:
    """Raises E2bRefusal for any user but the sandbox's only one."""
    environment = reached.sandbox.env if isinstance(reached.sandbox, Client) else reached.sandbox.environment
    if name not in ("", USER, environment.get("USER")):
        raise E2bRefusal(401, f"no user {name[:64]!r}: a sandbox has one user, and no command can become another")


def home_of(reached: Reached) -> str | None:
    """`/home/user`, if that is a link to the sandbox's directory; else None."""
    try:
        leads = reached.call("read_link", m.OnePath(HOME))["target"] == reached.sandbox.directory
    except (OSError, SandboxError):
        return None
    return HOME if leads else None


def resolved(server: Server, reached: Reached, path: str) -> str:
    """A path inside, made absolute: `~` and relative paths start at the client's home directory."""
    if path == "~" or path.startswith("~/"):
        path = path[2:]
    whole = os.path.join(server.e2b.of(reached.id).home or reached.sandbox.directory, path)
    # `..` is kept: only inside, where the links are, is it known what it means.
    return "/" + "/".join(part for part in whole.split("/") if part not in ("", "."))
