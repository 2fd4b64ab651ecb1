"""The client's side of a connection to a server."""

from __future__ import annotations

from typing import Any

import pytest
from wsproto.events import Ping

from sandbox import Sandbox
from sandbox.client import Client
from sandbox.errors import InvalidArgument, SandboxClosed
from sandbox.websocket import WebSocketClient


@pytest.mark.parametrize("url", ["http://sandboxes.invalid", "http://192.0.2.1:8080", "http://localhost.invalid"])
def test_a_token_is_not_sent_over_the_network_in_the_clear(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.create_connection", None)  # nothing leaves this machine, even if this fails
    with pytest.raises(InvalidArgument, match="not encrypted"):
        Sandbox.connect(url, "token")


@pytest.mark.parametrize("given", [{"hooks": object()}, {"config": {"mode": "strict"}}], ids=["hooks", "config"])
def test_hooks_for_a_sandbox_that_runs_already_are_refused_rather_than_forgotten(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="runs already"):
        Sandbox.connect("https://sandboxes.invalid", "token", id="vm-a1b2c3d4", **given)
    with pytest.raises(InvalidArgument, match="runs already"):
        Client(connection=object(), **given)  # type: ignore[arg-type]


def test_a_connection_that_ends_while_a_ping_is_answered_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(self: WebSocketClient, event: object) -> None:
        raise SandboxClosed("the connection to the server has ended")

    monkeypatch.setattr(WebSocketClient, "_next", lambda self: Ping(b""))
    monkeypatch.setattr(WebSocketClient, "_send", ended)
    assert WebSocketClient.__new__(WebSocketClient).receive() == b""
