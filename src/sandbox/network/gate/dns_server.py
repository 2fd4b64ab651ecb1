"""Serves DNS to tenants over UDP and TCP, at whatever resolver address they use."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from sandbox.errors import SandboxClosed
from sandbox.network.gate import dns
from sandbox.network.gate.first_bytes import exactly

if TYPE_CHECKING:
    from sandbox.guest.carried import CarriedDatagrams
    from sandbox.network.gate.dns import Lookup

_STREAM = 10.0
_IP_PKTINFO = 8


def serve_datagrams(sock: socket.socket | CarriedDatagrams, lookup: Lookup) -> None:
    """Answers a batch of queries on a port-53 socket that has PKTINFO set."""
    for _ in range(64):
        try:
            query, control, _, sender = sock.recvmsg(dns.MAX_MESSAGE + 1, 128)
        except BlockingIOError:
            return
        except SandboxClosed:
            asyncio.get_running_loop().remove_reader(sock)
            return
        except OSError:
            continue  # an ICMP error for an earlier response that nobody received
        response = dns.answer(query, lookup)
        if response is not None:
            try:
                sock.sendmsg([response], from_same(control), 0, sender)
            except OSError:
                pass


def from_same(control: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Control data that sends the response from the address the query went to; clients ignore any other."""
    answer = []
    for level, kind, data in control:
        if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO) and len(data) >= 12:
            # in_pktinfo: interface, address to send from, address it was sent to
            answer.append((level, kind, b"\0\0\0\0" + data[8:12] + b"\0\0\0\0"))
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO) and len(data) >= 20:
            answer.append((level, kind, data[:16] + b"\0\0\0\0"))
    return answer


async def serve_stream(client: socket.socket, lookup: Lookup) -> None:
    """DNS over TCP: each message is preceded by its length. Ends at the first malformed one."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_STREAM):
            while True:
                size = int.from_bytes(await exactly(client, 2), "big")
                if not 12 <= size <= dns.MAX_MESSAGE:
                    return
                response = dns.answer(await exactly(client, size), lookup)
                if response is None:
                    return
                await loop.sock_sendall(client, len(response).to_bytes(2, "big") + response)
    except TimeoutError:
        pass
