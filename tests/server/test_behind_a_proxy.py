"""`--trust-proxy`: headers about who asks count when the named proxy sends them, and from nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.serving import Served

ATTEMPTS = 40  # wrong tokens: twice as many as one address may try at once


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    servers: list[Served] = []

    def start(*words: str) -> Served:
        servers.append(Served(tmp_path / "home", "--port", "0", *words, cwd=tmp_path))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


def guesses(server: Served, address: Callable[[int], str]) -> set[int]:
    """The statuses of many wrong tokens, each with what a proxy would say about its sender."""
    with server.client("sbx_wrong") as guesser:
        headers = [{"X-Forwarded-For": address(number)} for number in range(ATTEMPTS)]
        return {guesser.get("/v1/me", headers=each).status_code for each in headers}


def test_without_a_proxy_nobody_becomes_another_by_a_header(started: Callable[..., Served]) -> None:
    assert guesses(started(), lambda number: f"192.0.2.{number}") == {401, 429}


def test_a_proxy_at_another_address_is_not_believed(started: Callable[..., Served]) -> None:
    assert guesses(started("--trust-proxy", "192.0.2.200"), lambda number: f"192.0.2.{number}") == {401, 429}


def test_the_proxys_clients_are_distinguished_and_cannot_pretend(started: Callable[..., Served]) -> None:
    server = started("--trust-proxy", "127.0.0.1")
    assert guesses(server, lambda number: f"192.0.2.{number}") == {401}
    # What a client itself wrote stands before what the proxy added.
    assert guesses(server, lambda number: f"198.51.100.{number}, 192.0.2.250") == {401, 429}
    assert server.http.get("/v1/me", headers={"X-Forwarded-For": "192.0.2.251"}).status_code == 200
