"""A local stand-in for every API that agents speak to: a proxy that answers for each host itself, over real TLS.

The gate is told to reach the world through it (`network.upstream_proxy`), so no name of a public host is ever resolved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.network.lab import LoopThread, Origin, Pki

Answer = Callable[[str, str, list[tuple[str, str]], bytes], Any]


class World(Origin):
    """Answers `CONNECT host:port` for any host with a certificate for that name, and remembers every request."""

    def __init__(self, directory: Path, answer: Answer) -> None:
        self.pki = Pki(directory)
        self._contexts: dict[str, Any] = {}
        self._loop = LoopThread()
        super().__init__(self._loop, None)
        self.raw = self._proxy
        self.answer = answer
        self.hosts: list[str] = []
        self.api: str | None = None  # the one host that answers; the others are out of order
        self.also: tuple[str, ...] = ()  # but for these

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        host = head.split()[1].decode().rpartition(":")[0]
        self.hosts.append(host)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()
        if host not in self._contexts:
            self._contexts[host] = self.pki.server_context([host], ["http/1.1"])
        await writer.start_tls(self._contexts[host])
        await self._http1(reader, writer)

    def _remember(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        answer = super()._remember(method, target, headers, body)
        named = {name.lower(): value for name, value in headers}
        answers = self.api is None or named.get("host") in (self.api, *self.also)
        return answer if answers else (503, [], b"out of order")

    def config(self) -> dict[str, Any]:
        """The person's settings that lead every connection here."""
        return {"upstream_proxy": f"http://127.0.0.1:{self.port}", "ca_certificates": [self.pki.file]}

    def sent(self, host: str) -> list[dict[str, Any]]:
        """What was asked of this host."""
        return [one for one in self.seen if dict(one["headers"]).get("host", dict(one["headers"]).get("Host")) == host]

    def prompts(self, host: str) -> list[dict[str, Any]]:
        """Those with a prompt: programs ask for much else, but post no more than a little for it."""
        return [one for one in self.sent(host) if one["method"] == "POST" and len(one["body"]) > 2000]

    def end(self) -> None:
        self.close()
        self._loop.close()
