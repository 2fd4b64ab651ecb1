"""Interpreters that keep their state, by every surface and on every engine."""

from __future__ import annotations

import base64
from threading import Event, Thread
from typing import Any

import pytest

from sandbox import CommandError, InvalidArgument, SandboxClosed, SandboxError
from sandbox.sessions import session as session_module

FOREVER = {"python": "while True: pass", "node": "while (true) {}", "bash": "sleep 1000"}
SET = {"python": "x = 41", "node": "x = 41", "bash": "x=41"}
SHOW = {"python": "print(x)", "node": "console.log(x)", "bash": "echo $x"}


@pytest.fixture(params=list(SET))
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter on a busy machine may take its time to hear of an interruption."""
    monkeypatch.setattr(session_module, "GRACE", 60.0)


@pytest.fixture
def py(sb: Any) -> Any:
    with sb.python(kernel="plain") as session:
        yield session


def test_state_is_kept_from_call_to_call(sb: Any, language: str) -> None:
    with sb.session(language, "plain") as session:
        assert session.run(SET[language]).ok
        assert session.run(SHOW[language]).stdout == "41\n"


def test_code_that_does_not_end_is_interrupted_and_the_state_stays(sb: Any, language: str) -> None:
    with sb.session(language, "plain") as session:
        session.run(SET[language])
        result = session.run(FOREVER[language], timeout=0.2)
        assert result.timed_out and not result.ok
        assert session.run(SHOW[language]).stdout == "41\n"


def test_after_a_restart_the_state_is_gone(sb: Any, language: str) -> None:
    with sb.session(language, "plain") as session:
        session.run(SET[language])
        session.restart()
        assert "41" not in session.run(SHOW[language]).stdout


def test_the_last_value_what_was_printed_and_what_children_print_are_in_the_result(py: Any) -> None:
    result = py.run("import os, sys\nprint('out')\nos.system('echo child')\nprint('err', file=sys.stderr)\n[1, 2]")
    assert (result.stdout, result.stderr, result.text) == ("out\nchild\n", "err\n", "[1, 2]")
    assert result["ok"] is True


def test_an_error_has_its_name_and_a_traceback_without_our_frames(py: Any) -> None:
    error = py.run("def f():\n    return 1 / 0\nf()").error
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert "return 1 / 0" in error.traceback and "session" not in error.traceback
    with pytest.raises(CommandError, match="SyntaxError"):
        py.run("1 +").check()
    assert py.run("raise SystemExit(3)").error.name == "SystemExit"
    assert py.run("1").text == "1"


def test_an_errors_long_value_arrives_whole_and_is_cut_at_its_limit(py: Any) -> None:
    assert py.run("raise ValueError('x' * 300_000)").error.value == "x" * 300_000
    endless = py.run("raise ValueError('x' * 20_000_000)").error
    assert (endless.name, len(endless.value), len(endless.traceback)) == ("ValueError", 4_000_000, 100_000)
    assert py.run("1").text == "1"


def test_values_are_shown_in_every_form_that_they_have(py: Any) -> None:
    result = py.run(
        "class Table:\n"
        "    def _repr_html_(self): return '<b>1</b>'\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "display(Table())\nTable()"
    )
    shown, value = result.outputs
    assert (shown.html, shown.png, shown.is_result) == ("<b>1</b>", b"\x89PNG", False)
    assert value.data["image/png"] == base64.b64encode(b"\x89PNG").decode() and value.is_result


def test_what_is_shown_can_be_sent_on_also_where_code_shows_half_a_character(py: Any) -> None:
    result = py.run("class P:\n  def __repr__(self): return 'half \\udcff, whole \U0001f600'\nP()")
    assert result.text == "half ?, whole \U0001f600"
    failed = py.run("raise ValueError('half \\udcff')").error
    assert failed.value == "half ?" and failed.traceback.encode()


def test_code_may_await(py: Any) -> None:
    assert py.run("import asyncio\nawait asyncio.sleep(0, 'slept')").text == "'slept'"


def test_output_comes_as_it_is_printed(py: Any) -> None:
    seen: list[str] = []
    py.run("for i in range(3): print(i)", on_stdout=seen.append)
    assert "".join(seen) == "0\n1\n2\n"


def test_output_that_comes_in_pieces_is_not_divided_within_a_character(sb: Any) -> None:
    seen: list[str] = []
    with sb.session("bash") as session:
        session.run("printf 'x%.0s' {1..50}; for n in {1..30000}; do printf '中'; done", on_stdout=seen.append)
    assert "".join(seen) == "x" * 50 + "中" * 30000 and len(seen) > 1


def test_more_output_than_asked_for_is_cut_and_said(py: Any) -> None:
    result = py.run("print('y' * 100000)", max_output=1000)
    assert result.truncated and result.stdout.startswith("y" * 1000) and "more bytes" in result.stdout


def test_an_interpreter_that_ends_is_an_error_and_the_next_call_has_a_new_one(py: Any) -> None:
    with pytest.raises(CommandError, match="interpreter ended"):
        py.run("import os; os._exit(3)")
    assert py.run("1 + 1").text == "2"


@pytest.mark.parametrize(
    ("language", "leave"), [("node", "process.exit(3)"), ("bash", "exit 3"), ("python", "os._exit(3)")]
)
def test_code_that_ends_its_interpreter_is_told_at_once_with_the_status_and_what_was_printed(
    sb: Any, language: str, leave: str
) -> None:
    before = {
        "node": "console.log('before')",
        "bash": "echo before",
        "python": "import os; print('before', flush=True)",
    }
    with sb.session(language, "plain") as session:
        session.run(before[language])
        with pytest.raises(CommandError, match="ended with status 3") as raised:
            session.run(f"{before[language]}; {leave}")
        assert raised.value.exit_code == 3
        assert language == "python" or raised.value.stdout == "before\n"
        assert session.run(before[language]).stdout == "before\n"


def test_a_name_of_the_codes_own_is_never_taken_in_node(sb: Any) -> None:
    with sb.session("node") as session:
        own = "const fs = require('fs'), run = 1; let send = 2, input = 3, show = 4; var util = 5; class Buffered {}"
        assert session.run(f"{own}; run + send + input + show + util").text == "15"
        assert session.run("import net from 'net'\ntypeof net.connect").text == "'function'"
        assert session.run("typeof fs.statSync + run").text == "'function1'"


LONG = {
    "python": ("x = 41", "print('中' * 300_001)", "'y' * 20_000_000", "raise ValueError('中' * 4_000_000)", "x"),
    "node": ("x = 41", "console.log('中'.repeat(300001))", "({toHTML: () => 'y'.repeat(2e7)})",
             "throw new Error('中'.repeat(4e6))", "x"),
}  # fmt: skip


@pytest.mark.parametrize("language", LONG)
def test_long_output_comes_unharmed_and_longer_values_and_errors_are_cut_without_the_end_of_the_session(
    sb: Any, language: str
) -> None:
    first, output, value, error, last = LONG[language]
    with sb.session(language, "plain") as session:
        session.run(first)
        assert session.run(output).stdout == "中" * 300_001 + "\n"
        shown = session.run(value)
        assert shown.ok and shown.truncated and len(shown.text) < 1_000_000
        assert session.run(error).error.value.startswith("中" * 1000)
        assert session.run(last).text == "41"


def test_code_without_input_reads_the_end_of_it(py: Any) -> None:
    assert py.run("input()").error.name == "EOFError"


def test_many_sessions_share_nothing(sb: Any) -> None:
    with sb.python(kernel="plain") as one, sb.python(kernel="plain") as other:
        one.run("x = 1")
        assert other.run("x").error.name == "NameError"


def test_another_thread_can_interrupt(py: Any) -> None:
    started, ended = Event(), Event()
    results: list[Any] = []

    def work() -> None:
        results.append(py.run("print('on', flush=True)\nwhile True: pass", on_stdout=lambda _: started.set()))
        ended.set()

    Thread(target=work).start()
    assert started.wait(30)
    py.interrupt()
    assert ended.wait(30) and results[0].error.name == "KeyboardInterrupt"


def test_a_closed_session_says_so_and_wrong_names_are_refused(sb: Any) -> None:
    session = sb.python()
    session.close()
    session.close()
    with pytest.raises(SandboxClosed):
        session.run("1")
    with pytest.raises(InvalidArgument, match="python, node, typescript, bash"):
        sb.session("cobol")
    with pytest.raises(InvalidArgument, match="jupyter"):
        sb.python("other")


FORGE = """
import os
for fd in range(3, 10):
    try: os.write(fd, b'{"done": true}\\n' * 3)
    except OSError: pass
"""


def test_what_one_run_forges_cannot_answer_for_the_next(py: Any) -> None:
    py.run(FORGE)
    assert [py.run(str(number)).text for number in range(3)] == ["0", "1", "2"]


def test_a_value_of_endless_forms_is_cut(py: Any) -> None:
    result = py.run(
        "class Many:\n    def _repr_mimebundle_(self): return {f'x/{n}': '' for n in range(50_000)}\n"
        "for _ in range(20): display(Many())"
    )
    assert sum(len(one.data) for one in result.outputs) <= 20 * 32


def test_a_shell_that_sends_endless_bytes_as_its_status_is_ended(sb: Any) -> None:
    with sb.session("bash") as session:
        with pytest.raises(SandboxError, match="too long"):
            session.run("printf() { command printf '\\n%s ' $2; while :; do echo -n 11111111111111111111; done; }")
        assert session.run("echo again").stdout == "again\n"


def test_typescript_runs_where_something_inside_removes_its_types_and_else_says_what_is_needed(sb: Any) -> None:
    own = sb.exec(["node", "-p", "typeof require('module').stripTypeScriptTypes"]).stdout == "function\n"
    with sb.session("typescript") as session:
        result = session.run("const n: number = 41; n + 1")
    if own:
        assert result.text == "42"
    else:
        assert "the package `typescript`" in result.error.value


def test_import_statements_work_in_node_and_the_names_stay(sb: Any) -> None:
    with sb.session("node") as session:
        code = "import { readFileSync as read, existsSync } from 'fs'\nimport path from 'node:path';\n"
        code += 'import * as os from "os"\n'
        result = session.run(code + "console.log(typeof read, typeof path.join, typeof os.cpus)")
        assert result.ok and result.stdout == "function function function\n"
        assert session.run("existsSync('/')").text == "true"
        assert session.run(
            "import fs, { statSync } from 'fs'\nawait Promise.resolve(typeof fs.statSync === typeof statSync)"
        ).ok
        assert session.run("`\nimport x from 'y'\n`.length").text == "19"  # text is left alone
