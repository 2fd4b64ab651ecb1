"""A sandbox's network policy: what is in force, and changes to it while it runs."""

from __future__ import annotations

from typing import Any

from litestar import get, patch, post

from sandbox.config.layers import Resolved
from sandbox.config.model import Config
from sandbox.config.restricted import restricted
from sandbox.rpc import messages as m
from sandbox.server.guard import require
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.shapes import Allow, Done


@get("/v1/sandboxes/{id:str}/network", opt={"verb": "read"})
async def policy(server: Server, reached: Reached) -> dict[str, Any]:
    """The `network` section in force, without secrets."""
    return await server.run(lambda: {"network": _now(reached)})


def _now(reached: Reached) -> dict[str, Any]:
    plain = reached.call("policy", m.Nothing())["network"]
    return dict(plain)


@patch("/v1/sandboxes/{id:str}/network", opt={"verb": "network"})
async def update(server: Server, access: Access, reached: Reached, data: dict[str, Any]) -> Done:
    """Changes settings of the `network` section; new connections see it at once. Without scope `host`: only tighter."""

    def change() -> None:
        changes = data if access.may("host") else only_tighter(_now(reached), data, reached.sandbox.directory)
        reached.sandbox.update_network(changes)

    await server.run(change)
    return Done()


def only_tighter(shown: dict[str, Any], changes: dict[str, Any], directory: str) -> dict[str, Any]:
    """What to change to get the tighter policy: a block-list that is asked for is added to the one in force.

    `shown` is the policy in force; no rule lets a client set the secrets it omits. Raises Denied, ConfigError.
    """
    known = {key: value for key, value in shown.items() if key not in ("secrets", "policy_secrets")}
    now = Config.read({"network": known})
    before = now.network.plain()
    after = restricted(Resolved(now, {}, []), {"network": changes}, directory).network.plain()
    return {key: value for key, value in after.items() if value != before[key]}


@post("/v1/sandboxes/{id:str}/allow", opt={"verb": "network"}, status_code=200)
async def allow(server: Server, access: Access, reached: Reached, data: Allow) -> Done:
    """Allows one more host: until the sandbox ends, or always (then also in the owner's config)."""
    require(access, "host")

    def change() -> None:
        hosts = list(_now(reached).get("allowed_hosts", []))
        if data.host not in hosts:
            reached.sandbox.update_network({"allowed_hosts": [*hosts, data.host]})
        if data.answer == "always":
            from sandbox.asks.stored_answers import keep_host

            keep_host(data.host)

    await server.run(change)
    return Done()


ROUTES = [policy, update, allow]
