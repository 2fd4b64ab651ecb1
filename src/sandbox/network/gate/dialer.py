"""Outgoing connections: resolve a name, ask the policy about every address, connect to an address it allowed."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from sandbox.errors import ConfigError, Denied
from sandbox.network.gate.socks_client import ask_socks
from sandbox.network.threads import in_thread
from sandbox.policy.addresses import normalize_ip_for_policy, parse_address
from sandbox.policy.hosts import InvalidHost, canonical_host
from sandbox.policy.network import HOST_NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sandbox.config.model import Network
    from sandbox.network.destination import Destination
    from sandbox.policy.network import NetworkPolicy

    Resolve = Callable[[str, int], Sequence[str]]
    Ask = Callable[[socket.socket, Destination, tuple[str, str] | None], Awaitable[None]]

_PER_ADDRESS = 10.0
_PROXY_ANSWER = 16384
_AT_ONCE = 32  # names being resolved at the same time for one sandbox


def system_resolve(host: str, port: int) -> list[str]:
    """The host system's own resolver. Raises OSError (`socket.gaierror`)."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Dialer:
    """Dials for one sandbox, with its own resolver if it has one."""

    def __init__(self, resolve: Resolve | None) -> None:
        self._resolve = resolve or system_resolve
        self._resolving = asyncio.Semaphore(_AT_ONCE)

    async def dial(self, destination: Destination, policy: NetworkPolicy, network: Network) -> socket.socket:
        """A connected socket to a destination that was judged. Raises Denied for a refused address, or OSError."""
        if destination.host == HOST_NAME:
            return await _connect(["127.0.0.1", "::1"], destination.port)
        if network.proxy_socket is not None and policy.through_socket(destination.host, destination.port):
            return await _asked(await _connect_unix(network.proxy_socket), _ask_http, destination, None)
        upstream_proxy = network.upstream_proxy
        if upstream_proxy is not None and not policy.dialled_directly(destination.host, destination.port):
            # The proxy resolves the name: it may be the only one that can, and the owner chose it.
            return await _through(upstream_proxy, destination)
        return await _connect(await self._addresses(destination, policy), destination.port)

    async def _addresses(self, destination: Destination, policy: NetworkPolicy) -> Sequence[str]:
        if parse_address(destination.host) is not None:
            return [destination.host]
        async with self._resolving:
            found = await in_thread(self._resolve, destination.host, destination.port)
        if not found:
            raise OSError(f"{destination.host} has no address")
        decision = policy.addresses(destination.host, destination.port, found)
        if not decision:
            raise Denied(decision.rule, decision.reason)
        addresses = [normalize_ip_for_policy(one) for one in found]
        for address in addresses if policy.intranet else ():
            if _is_ours(address) and not (refused := policy.own_address(destination.host, destination.port, address)):
                raise Denied(refused.rule, refused.reason)
        return addresses


def _is_ours(address: str) -> bool:
    """Whether the address belongs to this machine: a server here that listens on all addresses would answer there."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


async def _connect(addresses: Sequence[str], port: int) -> socket.socket:
    problem: Exception = OSError("no address to connect to")
    for address in addresses:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            async with asyncio.timeout(_PER_ADDRESS):
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
            return sock
        except (OSError, TimeoutError) as one:
            sock.close()
            problem = one
        except BaseException:
            sock.close()
            raise
    raise OSError(str(problem) or "timed out") from problem


class ProxyAddress:
    """`http://user:password@host:port`, or the same with `socks5h`, a SOCKS proxy that resolves names. Raises
    ConfigError."""

    def __init__(self, text: str) -> None:
        from urllib.parse import unquote, urlsplit

        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            if parts.scheme not in ("http", "socks5h") or not parts.hostname or parts.path not in ("", "/"):
                raise ValueError("not http://host:port")
            self.socks = parts.scheme == "socks5h"
            self.credentials: tuple[str, str] | None = None
            if parts.username is not None:
                self.credentials = unquote(parts.username), unquote(parts.password or "")
            self.host, self.port = canonical_host(parts.hostname), parts.port or (1080 if self.socks else 80)
        except (InvalidHost, ValueError):
            raise ConfigError(
                "must be http://host:port or socks5h://host:port", path="network.upstream_proxy"
            ) from None


async def _through(text: str, destination: Destination) -> socket.socket:
    proxy = ProxyAddress(text)
    found = [proxy.host] if parse_address(proxy.host) else await in_thread(system_resolve, proxy.host, proxy.port)
    sock = await _connect(found, proxy.port)
    return await _asked(sock, ask_socks if proxy.socks else _ask_http, destination, proxy.credentials)


async def _connect_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(_PER_ADDRESS):
            await asyncio.get_running_loop().sock_connect(sock, os.path.expanduser(path))
        return sock
    except (OSError, TimeoutError) as problem:
        sock.close()
        raise OSError("the proxy of network.proxy_socket cannot be reached") from problem
    except BaseException:
        sock.close()
        raise


async def _asked(
    sock: socket.socket, ask: Ask, destination: Destination, credentials: tuple[str, str] | None
) -> socket.socket:
    """The socket, when the proxy at its other end has connected it to the destination. Raises OSError."""
    try:
        async with asyncio.timeout(_PER_ADDRESS):
            await ask(sock, destination, credentials)
        return sock
    except BaseException as problem:
        sock.close()
        if isinstance(problem, TimeoutError):
            raise OSError("the upstream proxy did not answer") from None
        raise


async def _ask_http(sock: socket.socket, destination: Destination, credentials: tuple[str, str] | None) -> None:
    request = f"CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n"
    if credentials is not None:
        from base64 import b64encode

        request += f"Proxy-Authorization: Basic {b64encode(':'.join(credentials).encode()).decode()}\r\n"
    await asyncio.get_running_loop().sock_sendall(sock, request.encode() + b"\r\n")
    status = (await _head(sock)).split(b" ", 2)[1:2]
    if status != [b"200"]:
        # Only the number: the rest of the line may repeat what we sent, including our password.
        shown = next((one.decode() for one in status if one.isdigit() and len(one) == 3), "?")
        raise OSError(f"the upstream proxy refused {destination}: {shown}")


async def _head(sock: socket.socket) -> bytes:
    """The first line of the proxy's response. Reads exactly the head."""
    loop = asyncio.get_running_loop()
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = await loop.sock_recv(sock, 1)
        if not byte or len(head) > _PROXY_ANSWER:
            raise OSError("the upstream proxy gave no answer to CONNECT")
        head += byte
    return head.partition(b"\r\n")[0]
