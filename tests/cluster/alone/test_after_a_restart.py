"""Leases, certificates and connections of before: after their end, and after their agent was started anew."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path
from typing import Any

import pytest

from sandbox.cluster.agent import Agent
from sandbox.cluster.agent_stream import connect
from sandbox.cluster.line import AgentRefused, Line
from sandbox.errors import Denied, NotFound, SandboxError
from tests.cluster.alone.agents import Leased, agents
from tests.patience import until
from tests.sandboxes import home

__all__ = ["home"]
NODE = "e5f60718293a" * 4
GONE = (OSError, http.client.HTTPException, SandboxError)


class Thief:
    """Somebody who has copied all that a client had: key, certificate, token, and the session of its connection. They
    take any agent for theirs."""

    def __init__(self, victim: Leased, agent: Agent) -> None:
        self.token, self.url, self.port = victim.token, agent._url(), agent._lines.getsockname()[1]
        self.context = victim.identity.for_client(agent._identity.authority)

    def connect(self, sandbox: str = "", resumed: dict[Any, Any] | None = None) -> Any:
        return connect(("127.0.0.1", self.port), self.context, self.token, sandbox, resumed)

    def reaches(self, *also: str) -> list[str]:
        """The routes that answer with anything but a refusal."""
        found = []
        for path in ("/v1/sandboxes", "/v1/cluster/records", "/v1/audit", "/v1/tokens", "/metrics", *also):
            with Line(self.url, self.context, self.token) as line:
                try:
                    line.ask("GET", path)
                    found.append(path)
                except AgentRefused as refused:
                    assert refused.status in (401, 403, 404), path
                except GONE:
                    pass
        return found


def test_what_was_stolen_from_a_client_is_worth_nothing_once_its_sandbox_has_ended(home: Path) -> None:
    with agents(NODE) as [agent], Leased(agent).sandbox() as other:
        victim = Leased(agent)
        sandbox = victim.sandbox()
        sandbox.close()
        until(lambda: agent._server.tokens.access(victim.id) is None)
        thief = Thief(victim, agent)
        for name in ("", sandbox.id, other.id):
            with pytest.raises((Denied, NotFound)):
                thief.connect(name)
        assert thief.reaches(f"/v1/sandboxes/{other.id}", f"/v1/sandboxes/{sandbox.id}") == []
        with Line(thief.url, thief.context, thief.token) as line, pytest.raises(AgentRefused):
            line.ask_json("POST", "/v1/cluster/missing", {"digests": []})
        assert other.exec("echo undisturbed").stdout == "undisturbed\n"


def test_a_lease_of_before_makes_nothing_at_an_agent_that_was_started_anew(home: Path) -> None:
    with agents(NODE) as [agent]:
        unused, used = Leased(agent), Leased(agent)
        sandbox = used.sandbox()
    for name in ("", sandbox.id):
        with agents(NODE) as [agent]:
            for one in (unused, used):
                thief = Thief(one, agent)
                with pytest.raises(SandboxError):  # it does not know that authority
                    thief.connect(name)
                assert thief.reaches("/v1/cluster/alive") == []
            # The same client has come back: its certificate is known, what it was leased before is not.
            agent.lease(*used.identity.shown)
            for one in (unused, used):
                one.agent = agent
                with pytest.raises(SandboxError):
                    Thief(one, agent).connect(name)
            assert Thief(used, agent).reaches(f"/v1/sandboxes/{sandbox.id}") == []
            assert agent.status()["sandboxes"] == 0
    sandbox.close()


def test_a_client_of_before_does_not_take_an_agent_that_was_started_anew_for_its_own(home: Path) -> None:
    """Whoever gets the port of an agent that is gone is not talked to: no token, no configuration with its secrets."""
    with agents(NODE) as [agent]:
        leased = Leased(agent)
    with agents(NODE) as [agent]:
        for act in (
            lambda: connect(("127.0.0.1", agent._lines.getsockname()[1]), leased.context, leased.token),
            lambda: Line(agent._url(), leased.context, leased.token).ask("GET", "/v1/cluster/alive"),
        ):
            with pytest.raises((SandboxError, ssl.SSLCertVerificationError)) as refused:
                act()
            assert "CERTIFICATE_VERIFY_FAILED" in str(refused.value)


def test_a_connection_that_is_resumed_is_checked_as_a_first_one(home: Path) -> None:
    with agents(NODE) as [agent]:
        first, second, sessions = Leased(agent), Leased(agent), dict[Any, Any]()
        Thief(first, agent)
        context = first.context

        def again(token: str, sandbox: str = "") -> Any:
            return connect(("127.0.0.1", first.port), context, token, sandbox, sessions)

        again(first.token).close()
        assert sessions[context] is not None
        with second.sandbox() as other:
            for token, sandbox in ((second.token, other.id), (second.token, ""), (first.token, other.id), ("", "")):
                with pytest.raises((Denied, NotFound)):
                    again(token, sandbox)
        until(lambda: agent._server.tokens.access(first.id) is None)
        with pytest.raises(Denied):
            again(first.token)
    with agents(NODE) as [agent], pytest.raises(SandboxError):
        connect(("127.0.0.1", agent._lines.getsockname()[1]), context, first.token, "", sessions)


def test_a_connection_is_resumed_where_it_can_be(home: Path) -> None:
    with agents(NODE) as [agent]:
        leased, sessions = Leased(agent), dict[Any, Any]()
        with leased.sandbox() as sandbox:
            used = []
            for _ in range(3):
                line = connect(("127.0.0.1", leased.port), leased.context, leased.token, sandbox.id, sessions)
                used.append(line._kept._line.session_reused)  # type: ignore[union-attr]
                line.close()
            assert used == [False, True, True]
