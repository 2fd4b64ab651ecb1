"""The application: every route, behind the front."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Router
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp

from sandbox import __version__
from sandbox.server.decoding import JsonRequest
from sandbox.server.e2b import contexts as e2b_contexts
from sandbox.server.e2b import control as e2b_control
from sandbox.server.e2b import filesystem as e2b_filesystem
from sandbox.server.e2b import processes as e2b_processes
from sandbox.server.e2b import snapshots as e2b_snapshots
from sandbox.server.e2b import transfer as e2b_transfer
from sandbox.server.errors import answer
from sandbox.server.front import LOOPBACK, Front
from sandbox.server.guard import access_of, guard, reached_by
from sandbox.server.limits import Buckets
from sandbox.server.openapi import Complete
from sandbox.server.routes import (
    asks,
    audit,
    changes,
    checkpoints,
    dashboard,
    desktop,
    events,
    exec,
    files,
    manager,
    managers,
    metrics,
    network,
    nodes,
    ports,
    rpc,
    sandboxes,
    screens,
    sign,
    tickets,
)
from sandbox.server.server import Server
from sandbox.server.settings import BODY_LIMIT, Settings

GROUPS = [
    manager,
    managers,
    sandboxes,
    checkpoints,
    exec,
    desktop,
    screens,
    files,
    network,
    asks,
    audit,
    changes,
    events,
    ports,
    sign,
    rpc,
    metrics,
    nodes,
    tickets,
    dashboard,
    e2b_control,
    e2b_snapshots,
    e2b_processes,
    e2b_filesystem,
    e2b_transfer,
    e2b_contexts,
]


def application(server: Server, more: Sequence[Any] = ()) -> ASGIApp:
    """The ASGI application of a server; `more` holds additional routes."""
    routes = [*(route for group in GROUPS for route in group.ROUTES), *more]
    app = Litestar(
        route_handlers=routes,
        guards=[guard],
        dependencies={
            "server": Provide(lambda: server, sync_to_thread=False),
            "access": Provide(access_of, sync_to_thread=False),
            "reached": Provide(reached_by),
        },
        exception_handlers={Exception: answer},
        request_class=JsonRequest,
        request_max_body_size=BODY_LIMIT,
        openapi_config=_openapi(),
        lifespan=[_lifespan(server)],
        logging_config=None,
    )
    return Front(
        app,
        tokens=server.tokens,
        tickets=server.tickets,
        hosts=names(server.settings),
        buckets=Buckets(server.settings.rate),
        answered=server.answered,
        e2b=server.e2b.credentials,
    )


def names(settings: Settings) -> frozenset[str] | None:
    """The host names that a request's Host header may have; None accepts any."""
    if settings.unix_socket is not None:
        return None
    own = (
        () if settings.host in ("0.0.0.0", "::") else (f"[{settings.host}]" if ":" in settings.host else settings.host,)
    )
    return frozenset(one.lower() for one in (*LOOPBACK, *own, *settings.names))


def _lifespan(server: Server) -> Any:
    @asynccontextmanager
    async def life(_: Litestar) -> AsyncIterator[None]:
        await server.tail.start()
        try:
            yield
        finally:
            server.close()

    return life


def _openapi() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="sandbox",
        version=__version__,
        description="Run code you do not trust. See docs/server.md.",
        path="/schema",
        openapi_router=Router("/schema", route_handlers=[], opt={"public": True}),
        render_plugins=[Complete(path=["/", "/openapi.json"])],
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
    )
