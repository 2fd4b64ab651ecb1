"""The direct connections of clients to an agent, without Ray: who gets one, and what it does to others."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from sandbox import ConfigError, Denied, NotFound, SandboxError
from sandbox.async_process import AsyncProcess
from sandbox.client import Client
from sandbox.cluster.agent_stream import connect
from sandbox.cluster.identity import Identity
from tests.cluster.alone.agents import Leased, agents
from tests.patience import until
from tests.sandboxes import home

__all__ = ["home"]

NODE = "d" * 40


def heard(leased: Leased, said: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """What the agent answers to a first line, up to the end of the connection or of its answer."""
    found = b""
    with suppress(ssl.SSLError, ConnectionError), ExitStack() as held:
        raw = held.enter_context(socket.create_connection(("127.0.0.1", leased.port), 30))
        line = held.enter_context((context or leased.context).wrap_socket(raw, server_hostname="127.0.0.1"))
        line.sendall(said)
        while not found.endswith(b"\n") and (piece := line.recv(1000)):
            found += piece
    return found


def first(token: str, sandbox: str = "", **more: Any) -> bytes:
    return json.dumps({"token": token, "sandbox": sandbox, **more}).encode() + b"\n"


def test_a_first_line_that_is_none_ends_the_connection_and_disturbs_nobody(home: Path) -> None:
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        with Leased(agent).sandbox() as other:
            for said in (
                b"\n", b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"[]\n", b"\xff\xfe\n", b"x" * 100_000 + b"\n",
                first(leased.token, scope="all"), json.dumps({"token": None}).encode() + b"\n",
            ):  # fmt: skip
                assert heard(leased, said) == b"", said[:30]
            assert other.exec("echo still here").stdout == "still here\n"
        with leased.sandbox() as own:
            assert own.exec("echo mine").stdout == "mine\n"


def test_no_token_but_the_own_lease_gets_one(home: Path) -> None:
    with agents(NODE, keeper=NODE) as [agent]:
        owner, thief = Leased(agent), Leased(agent)
        reader = Identity("reader")
        _, authority, records = agent.keeper(*reader.shown)
        assert b"401" in heard(thief, first("sbx_wrong"))
        assert b"401" in heard(thief, first(""))
        assert b"401" in heard(thief, first(owner.token)), "stolen where tokens pass, in Ray"
        assert b"401" in heard(owner, first(records), reader.for_client(authority)), "for something else"
        with owner.sandbox() as sandbox:
            with pytest.raises(Denied):
                connect(("127.0.0.1", thief.port), thief.context, owner.token, sandbox.id)
            with pytest.raises(NotFound):
                thief.connect(sandbox.id)
            with pytest.raises(Denied):
                owner.sandbox()  # a lease is for one
            owner.connect(sandbox.id).close()
        agent.release(owner.id)
        assert b"401" in heard(owner, first(owner.token)), "after its end"


def test_who_has_no_certificate_of_a_client_gets_none(home: Path) -> None:
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        authority = agent._identity.authority
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        nobody.load_verify_locations(cadata=authority.decode())
        for context in (nobody, Identity("stranger").for_client(authority)):
            assert heard(leased, first(leased.token), context) == b""
        old = leased.identity.for_client(authority)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
        assert heard(leased, first(leased.token), old) == b""


def test_connections_that_never_say_anything_keep_nobody_out(home: Path) -> None:
    with agents(NODE) as [agent], ExitStack() as held:
        leased = Leased(agent)
        for _ in range(40):
            held.enter_context(socket.create_connection(("127.0.0.1", leased.port), 30))
        with leased.sandbox() as sandbox:
            assert sandbox.exec("echo here").stdout == "here\n"


def test_much_goes_both_ways_at_once(home: Path, tmp_path: Path) -> None:
    """One thread reads a TLS connection while others write it."""
    content = os.urandom(2**22)
    with agents(NODE) as [agent], Leased(agent).sandbox() as sandbox:
        sandbox.write_file("first", content)
        wrong: list[object] = []

        def work(name: str) -> None:
            for _ in range(3):
                sandbox.write_file(name, content)
                if sandbox.read_file(name) != content or sandbox.exec(f"wc -c < {name}").stdout.strip() != str(2**22):
                    wrong.append(name)

        threads = [Thread(target=work, args=(f"file-{number}",)) for number in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not wrong and sandbox.read_file("first") == content


def test_a_connection_that_is_cut_ends_its_sandbox(home: Path) -> None:
    with agents(NODE) as [agent]:
        sandbox = Leased(agent).sandbox()
        sandbox._connection.abandon()
        until(lambda: agent.status()["sandboxes"] == 0)
        with pytest.raises(SandboxError):
            sandbox.exec("true")


def test_no_sandbox_may_be_given_the_way_to_its_agent(home: Path) -> None:
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        with pytest.raises(ConfigError, match="no sandbox may reach"):
            leased.sandbox({"network": {"localhost_ports": [leased.port]}})


def test_a_kept_command_runs_on_when_an_asyncio_program_leaves_it(home: Path) -> None:
    async def leave(sandbox: Any) -> int:
        async def in_thread(work: Any, *_: object) -> Any:
            return await asyncio.to_thread(work)

        async with AsyncProcess(sandbox.spawn("echo first; read x; exit 6", keep="work"), in_thread) as process:
            assert (await process.read()).startswith(b"first")
            return process.pid or 0

    with agents(NODE) as [agent], Leased(agent).sandbox() as sandbox:
        pid = asyncio.run(leave(sandbox))
        with sandbox.connect("work") as again:
            assert again.pid == pid
            again.write(b"\n")
            assert again.wait(60).exit_code == 6


@pytest.mark.parametrize("ended", ["released", "unused"])
def test_a_lease_that_has_ended_makes_nothing_over_a_connection_that_it_opened_before(home: Path, ended: str) -> None:
    """Its place was given back to Ray: a sandbox would be beyond every quota, and nobody would remove its files."""
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        connection = leased.connect()
        if ended == "released":
            agent.release(leased.id)
        else:
            agent._leases._used[leased.id] = float("-inf")  # as if a minute had passed
            agent._leases.sweep()
        with pytest.raises(SandboxError):
            Client({}, connection=connection, create=True)
        assert agent.status()["sandboxes"] == 0


def test_of_many_that_use_one_lease_at_once_one_makes_a_sandbox(home: Path) -> None:
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        made: list[Client] = []

        def attempt() -> None:
            with suppress(Denied):
                made.append(leased.sandbox())

        attempts = [Thread(target=attempt) for _ in range(8)]
        for one in attempts:
            one.start()
        for one in attempts:
            one.join()
        with made[0] as own:
            assert len(made) == 1 and own.exec("echo mine").stdout == "mine\n"


def test_further_connections_to_a_sandbox_end_with_its_lease(home: Path) -> None:
    with agents(NODE) as [agent], Leased(agent).sandbox() as other:
        leased = Leased(agent)
        sandbox = leased.sandbox()
        further = [leased.connect(sandbox.id) for _ in range(3)]
        ended = Event()
        further[0].on_end = ended.set
        sandbox.close()
        agent.release(leased.id)
        assert ended.wait(30)
        assert other.exec("echo still here").stdout == "still here\n"
        for one in further:
            one.close()
