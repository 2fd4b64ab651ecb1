"""Errors over RPC: the client raises what `Sandbox` raises, and can show it in another language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sandbox
from sandbox import Client, Sandbox, errors
from sandbox.errors import Message, message_of
from sandbox.i18n import Translator
from sandbox.rpc.errors import Fault, RpcError, to_exception, to_fault
from sandbox.rpc.translatable import pack, unpack


def over_the_wire(problem: BaseException) -> Exception:
    return to_exception(json.loads(msgspec.json.encode(to_fault(problem).plain())))


def said(problem: BaseException) -> tuple[Any, ...]:
    """What somebody who catches it can see of it."""
    message = problem.reason if isinstance(problem, errors.Denied) else message_of(problem)
    parts = (message.template, dict(message.values)) if isinstance(message, Message) else (message, {})
    attributes = {name: getattr(problem, name, None) for name in ("path", "file", "line", "rule", "exit_code")}
    return type(problem), str(problem), *parts, attributes


@pytest.mark.parametrize(
    "problem",
    [
        errors.ConfigError("is larger than {largest} bytes", largest=9, path="enabled", file="config.yaml", line=3),
        errors.ConfigError("cannot be read: {reason}", reason="{largest} {"),
        errors.Denied("rule", "Matches blocked pattern: {pattern}", pattern=".env"),
        errors.CommandError("{command} cannot be run", command="nosuch", exit_code=126),
        errors.SandboxClosed("the sandbox has ended: {reason}", reason=Message("no {what}", what="room")),
        errors.EngineUnavailable("{engine} does not work here", engine="qemu"),
        errors.WallError("no {wall!r}", wall="landlock"),
        errors.LimitUnavailable("cannot limit {limit}", limit="memory"),
        errors.InvalidArgument("{text!r} is not UTF-8", text="ü"),
        errors.NotFound("there is no sandbox {id}", id="vm-1"),
        errors.GuestError("broken frame"),
        errors.SandboxError("{a} {b} {c} {d}", a=1, b=1.5, c=None, d=["x", "y"]),
    ],
)
def test_an_error_arrives_as_it_was_raised(problem: errors.SandboxError) -> None:
    assert said(over_the_wire(problem)) == said(problem)


def test_what_json_cannot_carry_is_shown_as_it_was() -> None:
    problem = errors.InvalidArgument("{text!r} in {path} is not UTF-8", text=b"\xff", path=Path("/x"))
    again = over_the_wire(problem)
    assert str(again) == str(problem) == "b'\\xff' in /x is not UTF-8"
    assert message_of(again).template == message_of(problem).template  # type: ignore[attr-defined]


def test_a_value_that_the_template_does_not_show_stays_on_the_server() -> None:
    assert pack(Message("no {a}", a=1, secret="s")) == {"template": "no {a}", "values": {"a": 1}}


def test_a_client_shows_an_error_in_its_own_language() -> None:
    chinese = Translator()
    chinese.use("zh-TW")
    inner = Message("is larger than {largest} bytes", largest=9)
    problem = errors.ConfigError("cannot be read: {reason}", reason=inner)
    assert chinese.text(over_the_wire(problem)) == "無法讀取：大於 9 位元組"
    fault = over_the_wire(Fault(-32011, "no request {id!r} is running", id=7))
    assert isinstance(fault, RpcError)
    assert chinese.text(fault) == "沒有正在執行的請求 7"


def test_an_unexpected_error_reveals_its_kind_and_nothing_else() -> None:
    assert "hunter2" not in json.dumps(to_fault(ValueError("hunter2")).plain())


def test_an_older_server_sends_text_alone() -> None:
    old = to_exception({"code": -32007, "message": "network: unknown key", "data": {"path": "network"}})
    assert (type(old), str(old)) == (errors.ConfigError, "network: unknown key")
    denied = to_exception({"code": -32006, "message": "no (rule: r)", "data": {"rule": "r", "reason": "no"}})
    assert str(denied) == "no (rule: r)"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["template", "values", "x"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["template", "values", "kind", "path", "rule", "errno"]), VALUES), st.text())
def test_whatever_the_other_side_sends_becomes_an_exception(data: dict[str, Any], message: str) -> None:
    for code in (-32000, -32003, -32004, -32005, -32006, -32007, -32099, 1):
        assert isinstance(to_exception({"code": code, "message": message, "data": data}), Exception)


@given(st.text(alphabet="ab{}!r .x"), st.dictionaries(st.sampled_from("abx"), VALUES, min_size=1))
def test_a_template_that_does_not_fit_its_values_is_rejected(template: str, values: dict[str, Any]) -> None:
    found = unpack({"template": template, "values": values})
    assert found is None or found.template == template


@pytest.mark.parametrize(
    "config",
    [
        {"network": {"allowed_hots": []}},
        {"network": {"allowed_hosts": 7}},
        {"filesystem": {"root": "/no/such/place"}},
        {"engine": "no-such-engine"},
    ],
)
def test_client_and_sandbox_raise_the_same(config: dict[str, Any], rpc: list[str], home: Path) -> None:
    with pytest.raises(sandbox.SandboxError) as here:
        Sandbox(config)
    with pytest.raises(sandbox.SandboxError) as there:
        Client(config, command=rpc)
    assert said(there.value) == said(here.value)


def test_a_command_that_cannot_run_raises_the_same(rpc: list[str], home: Path) -> None:
    caught = []
    for surface in (Sandbox({}), Client({}, command=rpc)):
        with surface, pytest.raises(sandbox.CommandError) as problem:
            surface.exec(["no-such-program"])
        caught.append(said(problem.value))
    assert caught[0] == caught[1]
