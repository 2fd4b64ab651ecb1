"""Running the server: where it listens, how it begins, how it ends."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from sandbox.config.home import home
from sandbox.errors import InvalidArgument, SandboxError
from sandbox.i18n import _
from sandbox.registry.servers import announce, withdraw
from sandbox.server.app import application
from sandbox.server.connections import bounded
from sandbox.server.scopes import OWNER
from sandbox.server.server import Server

if TYPE_CHECKING:
    from sandbox.sandboxes import Sandboxes
    from sandbox.server.settings import Settings

DRAIN = 10  # seconds that requests have to finish when the server shuts down
LARGEST_MESSAGE = 2**20  # bytes of one WebSocket message


def serve(sandboxes: Sandboxes, settings: Settings, *, new_token: bool = False) -> int:
    """Serves until SIGTERM or SIGINT. Prints the address; with `new_token` also a token that ends with the server."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listening = listen(settings)
    port = listening.getsockname()[1] if settings.unix_socket is None else f"unix-{os.getpid()}"
    try:
        announce(home(), port)
        return asyncio.run(_run(sandboxes, settings, listening, new_token))
    except KeyboardInterrupt:
        return 130
    finally:
        listening.close()
        withdraw(home(), port)
        if settings.unix_socket is not None:
            _unlink(settings.unix_socket)


async def _run(sandboxes: Sandboxes, settings: Settings, listening: socket.socket, new_token: bool) -> int:
    server = Server(sandboxes, settings)
    text = None
    if new_token:
        text, _made = server.tokens.new(OWNER, name=f"serve-{os.getpid()}", passing=True)
    config = uvicorn.Config(
        application(server),
        http=bounded(),
        ws="wsproto",
        ws_max_size=LARGEST_MESSAGE,
        ws_per_message_deflate=False,  # the size is checked after unpacking: 1 MiB could become 200
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=settings.trust_proxy is not None,
        forwarded_allow_ips=settings.trust_proxy or "",
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        timeout_graceful_shutdown=DRAIN,
    )
    running = _Uvicorn(config, server)
    print(_("serving on {address}").format(address=address(settings, listening)), flush=True)
    if text is not None:
        print(_("token (valid until the server ends): {token}").format(token=text), flush=True)
        print(f"{address(settings, listening)}/#token={text}", flush=True)
    await running.serve(sockets=[listening])
    return 0


class _Uvicorn(uvicorn.Server):
    """Ends endless streams on shutdown, so that uvicorn only waits for requests that finish by themselves."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._server = server

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's own, but does not raise the signal again afterwards: that would skip our cleanup."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._server.draining.set()
        super().handle_exit(sig, frame)


def listen(settings: Settings) -> socket.socket:
    """The listening socket. Raises SandboxError."""
    if settings.unix_socket is not None:
        return _listen_unix(settings.unix_socket)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # IPPROTO_TCP by number: only then does asyncio turn Nagle's algorithm off, which would delay answers by 40 ms.
    line = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        line.bind((settings.host, settings.port))
        line.listen(1024)
    except OSError as problem:
        line.close()
        raise SandboxError(
            "cannot listen on {host}:{port}: {reason}", host=settings.host, port=settings.port, reason=problem.strerror
        ) from problem
    return line


def _listen_unix(path: str) -> socket.socket:
    """A socket that only this user can connect to. Replaces one that a killed server left behind."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX) as other:
            if other.connect_ex(path) == 0:
                raise SandboxError("another server listens on {path}", path=path)
        _unlink(path)
        if sys.platform == "linux":
            os.fchmod(line.fileno(), 0o600)
        line.bind(path)
        os.chmod(path, 0o600)
        line.listen(1024)
    except OSError as problem:
        line.close()
        raise SandboxError("cannot listen on {path}: {reason}", path=path, reason=problem.strerror) from problem
    except BaseException:
        line.close()
        raise
    return line


def _unlink(path: str) -> None:
    try:
        import stat

        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass


def address(settings: Settings, listening: socket.socket) -> str:
    """The server's address as a URL."""
    if settings.unix_socket is not None:
        return f"unix:{settings.unix_socket}"
    host, port = listening.getsockname()[:2]
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"{'https' if settings.certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def check(settings: Settings) -> None:
    """Raises InvalidArgument for settings that are unsafe or cannot work."""
    if bool(settings.certificate) != bool(settings.key):
        raise InvalidArgument("TLS needs both --cert and --key")
    if settings.most is not None and settings.most < 1:
        raise InvalidArgument("--most must be at least 1")
    if not 0 <= settings.port <= 65535:
        raise InvalidArgument("--port must be a number from 0 to 65535")
    if not 0 < settings.rate < float("inf"):
        raise InvalidArgument("--rate must be greater than zero")
    _check_proxy(settings.trust_proxy)
    for file in (settings.certificate, settings.key):
        _check_readable(file)
    loopback = settings.unix_socket is not None or settings.host in ("127.0.0.1", "::1", "localhost")
    if not loopback and not settings.certificate and settings.trust_proxy is None:
        raise InvalidArgument(
            "{host} can be reached from other machines, and tokens would cross the network readable; "
            "give --cert and --key, or --trust-proxy for a proxy that ends TLS",
            host=settings.host,
        )


def _check_proxy(addresses: str | None) -> None:
    """A name would never be an address, `*` would be everybody's. Raises InvalidArgument."""
    if addresses is None:
        return
    try:
        for one in addresses.split(","):
            ip_network(one.strip(), strict=False)
    except ValueError:
        raise InvalidArgument(
            "--trust-proxy must be the proxy's address, or a network such as 10.0.0.0/8, not {given!r}", given=addresses
        ) from None


def _check_readable(file: str | None) -> None:
    if file is None:
        return
    try:
        open(file, "rb").close()
    except OSError as problem:
        raise InvalidArgument("cannot read {file}: {reason}", file=file, reason=problem.strerror) from None
