"""`sandbox --rpc` on the wire: what the seed shows, and what happens to everything else."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.rpc import errors
from tests.rpc.raw import Raw, serving

pytestmark = pytest.mark.walls


@pytest.fixture
def raw(rpc: list[str]) -> Iterator[Raw]:
    with serving(rpc) as server:
        yield server


@pytest.fixture
def made(raw: Raw) -> Raw:
    assert raw.ask("create")["result"]["id"].startswith("vm-")
    return raw


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


# -- the seed's shapes


def test_exec_answers_with_exit_code_base64_output_and_duration(made: Raw) -> None:
    result = made.ask("exec", command="echo hello; echo oops >&2; exit 4")["result"]
    assert (result["exit_code"], result["stdout"], result["stderr"]) == (4, b64("hello\n"), b64("oops\n"))
    assert isinstance(result["duration_ms"], int)


def test_every_answer_of_exec_stream_carries_its_id_and_the_last_the_exit_code(made: Raw) -> None:
    made.send({"jsonrpc": "2.0", "method": "exec_stream", "params": {"command": "echo a; echo b >&2; exit 2"}, "id": 9})
    answers = [made.receive()]
    while "exit_code" not in answers[-1]["result"]:
        answers.append(made.receive())
    assert {answer["id"] for answer in answers} == {9}
    assert answers[-1]["result"]["exit_code"] == 2
    assert {"stdout": b64("a\n")} in [answer["result"] for answer in answers]
    assert {"stderr": b64("b\n")} in [answer["result"] for answer in answers]


def test_files_as_the_seed_spells_them(made: Raw) -> None:
    made.ask("mkdir", path="/tmp/w")
    assert made.ask("write_file", path="/tmp/w/hello.py", content=b64("print(1)\n"), mode=420)["result"] == {}
    assert made.ask("read_file", path="/tmp/w/hello.py")["result"]["content"] == b64("print(1)\n")
    (file,) = made.ask("list_files", path="/tmp/w")["result"]["files"]
    assert file.items() >= {"name": "hello.py", "size": 9, "mode": 420, "is_dir": False}.items()


def test_events_are_notifications_without_an_id(made: Raw) -> None:
    made.ask("exec", command="exit 5")
    while not (seen := [event["exec"]["exit_code"] for event in made.events if event["type"] == "exec"]):
        made.ask("exec", command="exit 5")  # events come when they come; an answer is something to wait for
    assert seen[0] == 5


def test_close_answers_and_ends_the_process(made: Raw) -> None:
    assert made.ask("close")["result"] == {}
    assert made.wait() == 0


def test_a_file_too_large_for_a_message_is_read_in_pieces(made: Raw) -> None:
    made.ask("exec", command="truncate -s 300M /tmp/large; printf end >> /tmp/large")
    error = made.ask("read_file", path="/tmp/large")["error"]
    assert (error["code"], error["data"]["size"]) == (errors.TOO_LARGE, 300 * 2**20 + 3)
    piece = made.ask("read_file", path="/tmp/large", offset=300 * 2**20, length=100)["result"]
    assert (piece["content"], piece["size"]) == (b64("end"), 300 * 2**20 + 3)


def test_a_piece_is_written_where_it_belongs(made: Raw) -> None:
    made.ask("write_file", path="/tmp/pieces", content=b64("old and long"))
    made.ask("write_file", path="/tmp/pieces", content=b64("abc"))
    made.ask("write_file", path="/tmp/pieces", content=b64("xyz"), offset=5)
    assert made.ask("read_file", path="/tmp/pieces")["result"]["content"] == b64("abc\0\0xyz")


def test_names_that_are_no_utf8_break_nothing(made: Raw) -> None:
    made.ask("exec", command="mkdir /tmp/odd; touch /tmp/odd/$(printf 'a\\377')")
    (file,) = made.ask("list_files", path="/tmp/odd")["result"]["files"]
    assert (file["name"], file["name_bytes"]) == ("a\ufffd", b64(b"a\xff"))
    made.send({"jsonrpc": "2.0", "method": "exec", "params": {"command": ["printf", "\udcff"]}, "id": 2})
    assert made.error() == errors.PARSE
    assert made.ask("exec", command="echo on")["result"]["exit_code"] == 0


def test_a_secret_appears_in_nothing_that_is_said(raw: Raw, home: Path) -> None:
    secret = "sk-not-to-be-seen-anywhere"
    network = {"secrets": {"KEY": {"value": secret, "hosts": ["api.openai.com"]}}}
    made = raw.ask("create", network=network, env={"KEY": "${KEY}"})
    assert made["result"]["env"]["KEY"] not in ("", "${KEY}")
    said = [made, raw.ask("exec", command="env"), raw.ask("create", network=network), raw.ask("exec", command=secret)]
    inside = base64.b64decode(said[1]["result"]["stdout"]).decode()
    assert f"KEY={made['result']['env']['KEY']}\n" in inside
    assert secret not in inside
    assert secret not in json.dumps(said[:3])


def test_a_mistake_in_a_secret_is_reported_without_its_value(rpc: list[str]) -> None:
    from tests.cli.test_secret_values import MISTAKES, told

    with serving(rpc) as raw:
        for mistake, settings in MISTAKES.items():
            answer = raw.ask("create", mistake, **settings)
            assert "error" in answer, mistake
            assert told(json.dumps(answer)) == "", mistake


def test_create_takes_srts_settings_with_srts_meaning(raw: Raw, tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("beside\n")
    closed = {"denyRead": [], "allowWrite": ["."], "denyWrite": ["kept"]}
    made = raw.ask("create", network={"allowedDomains": [], "deniedDomains": []}, filesystem=closed)
    assert "result" in made, made
    command = f"cat {tmp_path}/beside; echo new > made; echo new > kept; curl -s http://evil.test/"
    said = base64.b64decode(raw.ask("exec", command=command)["result"]["stdout"]).decode()
    assert said.startswith("beside\nConnection blocked by network allowlist")
    project = Path.cwd()
    assert (project / "made").read_text() == "new\n" and (project / "kept").read_text() == ""


def test_create_takes_strict_srt_settings(raw: Raw, tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("beside\n")
    fault = raw.ask("create", strict=True, filesystem={"allowWrite": ["."], "disabled": True})
    assert "filesystem.disabled" in fault["error"]["message"]
    raw.ask("create", strict=True, filesystem={"denyRead": [], "allowWrite": ["."], "denyWrite": []}, env={"A": "1"})
    said = raw.ask("exec", command=f"cat {tmp_path}/beside; echo $A")["result"]["stdout"]
    assert base64.b64decode(said) == b"1\n"


# -- many at a time


def test_a_thousand_commands_at_a_time_all_complete(made: Raw) -> None:
    for number in range(1000):
        made.send({"jsonrpc": "2.0", "method": "exec", "params": {"command": ["true"]}, "id": f"crowd-{number}"})
    answers = [made.receive() for _ in range(1000)]
    assert len({answer["id"] for answer in answers}) == 1000
    assert {answer["result"]["exit_code"] for answer in answers} == {0}


def test_a_slow_request_does_not_hold_up_others(made: Raw) -> None:
    made.send({"jsonrpc": "2.0", "method": "exec", "params": {"command": "cat /tmp/gate"}, "id": "slow"})
    made.send({"jsonrpc": "2.0", "method": "exec", "params": {"command": "sleep 1000"}, "id": "slower"})
    while made.receive()["id"] != "slow":  # there is no such file: the first ends by itself
        pass
    assert made.ask("exec", 3, command="echo quick")["result"]["stdout"] == b64("quick\n")


def test_requests_sent_behind_create_wait_for_it(raw: Raw) -> None:
    lines = [{"method": "create", "id": 1}, {"method": "exec", "params": {"command": "echo in"}, "id": 2}]
    raw.send(b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in lines))
    answers = {answer["id"]: answer["result"] for answer in (raw.receive(), raw.receive())}
    assert answers[2]["stdout"] == b64("in\n")


def test_answers_still_come_when_stdin_ended_behind_the_requests(rpc: list[str]) -> None:
    asked = [{"method": "create", "id": 1}, {"method": "exec", "params": {"command": "echo last"}, "id": 2}]
    given = b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in asked)
    done = subprocess.run(rpc, input=given, capture_output=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(answer.get("id") == 2 and answer["result"]["stdout"] == b64("last\n") for answer in answers)


def test_cancel_ends_a_command_with_an_error_of_its_own(made: Raw) -> None:
    made.send({"jsonrpc": "2.0", "method": "exec", "params": {"command": "sleep 1000"}, "id": "long"})
    made.send({"jsonrpc": "2.0", "method": "cancel", "params": {"request": "long"}, "id": 2})
    answers = {answer["id"]: answer for answer in (made.receive(), made.receive())}
    assert answers[2]["result"] == {}
    assert answers["long"]["error"]["code"] == errors.CANCELLED


def test_input_arrives_in_the_order_it_was_sent(made: Raw) -> None:
    made.send({"jsonrpc": "2.0", "method": "exec_pipe", "params": {"command": "cat"}, "id": "cat"})
    for number in range(200):
        data = {"request": "cat", "data": b64(f"{number}\n")}
        made.send({"jsonrpc": "2.0", "method": "input", "params": data})
    made.send({"jsonrpc": "2.0", "method": "input", "params": {"request": "cat", "end": True}})
    output = b""
    while "exit_code" not in (result := made.receive()["result"]):
        output += base64.b64decode(result.get("stdout", ""))
    assert output == b"".join(b"%d\n" % number for number in range(200))


def test_a_resized_terminal_signals_its_command(made: Raw) -> None:
    command = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done"
    made.send({"jsonrpc": "2.0", "method": "exec_tty", "params": {"command": command}, "id": "tty"})
    output = b""
    while b"ready" not in output:
        output += base64.b64decode(made.receive()["result"].get("stdout", ""))
    made.send({"jsonrpc": "2.0", "method": "resize", "params": {"request": "tty", "rows": 33, "cols": 111}})
    while b"33 111" not in output:
        output += base64.b64decode(made.receive()["result"].get("stdout", ""))


# -- what is not as it should be: an error each, and the process lives on

BROKEN = [
    pytest.param(b"not json\n", errors.PARSE, id="not JSON"),
    pytest.param(b'{"jsonrpc": "2.0", "method": "exec"\n', errors.PARSE, id="half of it"),
    pytest.param(b'{"jsonrpc": "2.0", "method": "\xff\xfe", "id": 1}\n', errors.PARSE, id="not UTF-8"),
    pytest.param(
        b'{"jsonrpc": "2.0", "method": "exec", "params": {"command": "\xff"}, "id": 1}\n',
        errors.PARSE,
        id="not UTF-8 inside",
    ),
    pytest.param(b'{"jsonrpc": "2.0", "params": ' + b"[" * 100_000 + b"\n", errors.PARSE, id="very deep"),
    pytest.param(b"[]\n", errors.INVALID_REQUEST, id="a batch"),
    pytest.param(b"17\n", errors.INVALID_REQUEST, id="a number"),
    pytest.param(b'{"method": "exec", "id": 1}\n', errors.INVALID_REQUEST, id="no version"),
    pytest.param(b'{"jsonrpc": "1.0", "method": "exec", "id": 1}\n', errors.INVALID_REQUEST, id="another version"),
    pytest.param(b'{"jsonrpc": "2.0", "id": 1}\n', errors.INVALID_REQUEST, id="no method"),
    pytest.param(b'{"jsonrpc": "2.0", "method": 5, "id": 1}\n', errors.INVALID_REQUEST, id="a method that is a number"),
    pytest.param(b'{"jsonrpc": "2.0", "method": "exec", "id": {}}\n', errors.INVALID_REQUEST, id="an object as id"),
    pytest.param(b'{"jsonrpc": "2.0", "method": "exec", "id": 1.5}\n', errors.INVALID_REQUEST, id="a broken id"),
    pytest.param(b'{"jsonrpc": "2.0", "method": "format_disk", "id": 1}\n', errors.NO_SUCH_METHOD, id="unknown method"),
    pytest.param(b'{"jsonrpc": "2.0", "method": "exec", "id": 1}\n', errors.INVALID_PARAMS, id="no params"),
    pytest.param(
        b'{"jsonrpc": "2.0", "method": "exec", "params": [], "id": 1}\n', errors.INVALID_PARAMS, id="params by position"
    ),
    pytest.param(
        b'{"jsonrpc": "2.0", "method": "exec", "params": {"command": 5}, "id": 1}\n',
        errors.INVALID_PARAMS,
        id="wrong type",
    ),
    pytest.param(
        b'{"jsonrpc": "2.0", "method": "exec", "params": {"command": "x", "shell": 1}, "id": 1}\n',
        errors.INVALID_PARAMS,
        id="unknown parameter",
    ),
    pytest.param(
        b'{"jsonrpc": "2.0", "method": "write_file", "params": {"path": "/a", "content": "@@"}, "id": 1}\n',
        errors.INVALID_PARAMS,
        id="not base64",
    ),
    pytest.param(
        b'{"jsonrpc": "2.0", "method": "exec", "params": {"command": "true"}, "id": 1}\n',
        errors.NOT_CREATED,
        id="before create",
    ),
]


@pytest.mark.parametrize(("line", "code"), BROKEN)
def test_a_faulty_line_gets_an_error_and_the_process_lives_on(raw: Raw, line: bytes, code: int) -> None:
    raw.send(line)
    assert raw.error() == code
    assert raw.ask("create")["result"]["id"]


def test_an_id_in_use_cannot_be_used_again_until_it_is_answered(made: Raw) -> None:
    made.send({"jsonrpc": "2.0", "method": "exec_pipe", "params": {"command": "cat"}, "id": 7})
    assert "pid" in made.receive()["result"]
    made.send({"jsonrpc": "2.0", "method": "exec", "params": {"command": "true"}, "id": 7})
    assert made.error() == errors.INVALID_REQUEST
    made.send({"jsonrpc": "2.0", "method": "input", "params": {"request": 7, "end": True}})
    assert made.receive()["result"]["exit_code"] == 0
    assert made.ask("exec", 7, command="true")["result"]["exit_code"] == 0


def test_a_line_over_the_limit_is_refused_and_the_next_one_answered(raw: Raw) -> None:
    raw.send(b'{"jsonrpc": "2.0", "method": "write_file", "params": {"content": "')
    piece = b"A" * 2**20
    for _ in range(65):
        raw.send(piece)
    raw.send(b'"}}\n')
    assert raw.error() == errors.LINE_TOO_LONG
    assert raw.ask("create")["result"]["id"]


def test_there_is_one_sandbox_per_connection(made: Raw) -> None:
    assert made.ask("create", 2)["error"]["code"] == errors.ALREADY_CREATED


def test_what_is_not_running_cannot_be_signalled(made: Raw) -> None:
    for method, more in (("signal", {"signal": 15}), ("cancel", {}), ("input", {}), ("resize", {"rows": 1, "cols": 1})):
        assert made.ask(method, request=99, **more)["error"]["code"] == errors.NO_SUCH_REQUEST


def test_null_parameters_are_the_same_as_no_parameters(made: Raw) -> None:
    made.send({"jsonrpc": "2.0", "method": "close", "params": None, "id": 5})
    assert made.receive()["result"] == {}


def test_a_notification_is_done_and_not_answered(made: Raw) -> None:
    made.send({"jsonrpc": "2.0", "method": "write_file", "params": {"path": "/tmp/said", "content": b64("x")}})
    made.send({"jsonrpc": "2.0", "method": "no_such_method"})
    while "error" in made.ask("read_file", 3, path="/tmp/said"):
        pass


# -- the life of the process


def test_a_configuration_file_and_flags_are_the_base_of_create(rpc: list[str], tmp_path: Path) -> None:
    file = tmp_path / "sandbox.yaml"
    file.write_text("limits: {timeout: 200ms}\n", encoding="utf-8")
    with serving(rpc, "--config", str(file), "--allow-host", "api.openai.com") as raw:
        raw.ask("create")
        assert raw.ask("exec", command="sleep 1000")["result"]["timed_out"] is True


def test_a_stray_print_cannot_break_the_protocol(made: Raw) -> None:
    assert made.ask("exec", command="cat", stdin=b64("x"))["result"]["stdout"] == b64(
        "x"
    )  # and no child reads requests
