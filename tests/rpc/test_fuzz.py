"""Arbitrary bytes and arbitrary JSON at the RPC surface: one error per line, and the process lives on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.rpc.methods import METHODS
from tests.rpc.raw import Raw, serving

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
# Words that methods know, so that fuzzing gets past the first check. Commands are harmless: `close` would end the run.
_WORDS = "command path content env stdin timeout request data signal rows cols offset old new working_dir"
KEYS = st.sampled_from(_WORDS.split())
NAMES = st.sampled_from(sorted(set(METHODS) - {"close", "create"})) | st.text(max_size=12)
REQUESTS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | PLAIN, "method": NAMES | PLAIN, "id": st.integers(0, 10**9) | PLAIN},
    optional={"params": st.dictionaries(KEYS, PLAIN, max_size=5) | PLAIN},
)


class Server:
    """One server for all examples; each example ends with a question that only a living one answers."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self._asked = 0

    def still_lives(self) -> None:
        self._asked += 1
        id = f"alive-{self._asked}"
        self.raw.send({"jsonrpc": "2.0", "method": "stat", "params": {"path": "/tmp"}, "id": id})
        while (answer := self.raw.receive()).get("id") != id:
            assert "result" in answer or answer["error"]["code"] < 0
        assert answer["result"]["is_dir"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from tests.sandboxes import program

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDBOX_HOME", str(tmp_path_factory.mktemp("home")))
        patch.chdir(tmp_path_factory.mktemp("project"))
        with serving([*program(), "--rpc"]) as raw:
            raw.ask("create")
            yield Server(raw)


FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150)


@FUZZ
@given(line=st.binary(max_size=400).filter(lambda data: b"close" not in data))
def test_arbitrary_bytes_are_survived(server: Server, line: bytes) -> None:
    server.raw.send(line + b"\n")
    server.still_lives()


@FUZZ
@given(message=PLAIN)
def test_arbitrary_json_is_survived(server: Server, message: Any) -> None:
    server.raw.send(json.dumps(message).encode() + b"\n")
    server.still_lives()


@FUZZ
@given(message=REQUESTS)
def test_requests_that_are_nearly_right_are_survived(server: Server, message: dict[str, Any]) -> None:
    server.raw.send(message)
    server.still_lives()
