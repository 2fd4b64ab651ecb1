"""The owner's own code, and a notification on the desktop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.asks.pending import Asks
from sandbox.asks.question import HostSubject, Question, Requester
from sandbox.asks.verdict import Verdict
from sandbox.asks.ways_to_ask import DesktopWay, HookWay, notifier


class Asked:
    """A table whose verdict can be waited for."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.over = threading.Event()
        self.verdict = Verdict(False, "", "")
        self.asks = Asks("vm-test", emit=lambda _: None, record=self._record, number=lambda: 7, keep=lambda _: None)

    def _record(self, kind: str, summary: str, **more: Any) -> None:
        self.records.append(more)

    def ask(self, subject: HostSubject | None = None, seconds: float = 60.0) -> Verdict:
        def then(verdict: Verdict) -> None:
            self.verdict = verdict
            self.over.set()

        self.asks.ask(subject or HostSubject("a.test", 443), seconds, then)
        assert self.over.wait(20)
        return self.verdict

    @property
    def by(self) -> str:
        return str(self.records[-1]["metadata"]["by"])


@pytest.fixture
def asked() -> Iterator[Asked]:
    one = Asked()
    yield one
    one.asks.close()


def hooked(asked: Asked, hook: Callable[[Any], Any]) -> Asked:
    asked.asks.add(HookWay(asked.asks, hook))
    return asked


# -- on_ask


@pytest.mark.parametrize("answer", ["once", "sandbox", "always"])
def test_a_hook_allows(asked: Asked, answer: str) -> None:
    seen: list[Any] = []

    def on_ask(ask: Any) -> str:
        seen.append(ask)
        return answer

    assert hooked(asked, on_ask).ask().answer == answer
    assert asked.by == "on_ask" and (seen[0].host, seen[0].port, seen[0]["kind"]) == ("a.test", 443, "host")


def test_a_coroutine_function_is_waited_for(asked: Asked) -> None:
    async def on_ask(ask: Any) -> str:
        await asyncio.sleep(0)
        return "sandbox"

    assert hooked(asked, on_ask).ask()


def _raises(ask: Any) -> str:
    raise ValueError("a secret in the message")


@pytest.mark.parametrize("hook", [_raises, lambda _: True, lambda _: "yes", lambda _: 1, lambda _: ["once"]])
def test_a_hook_that_fails_denies(asked: Asked, hook: Callable[[Any], Any]) -> None:
    verdict = hooked(asked, hook).ask()
    assert not verdict and "denied" in verdict.why
    assert "secret" not in str(asked.records)


def test_a_hook_that_never_returns_is_overtaken_by_the_timeout(asked: Asked) -> None:
    stuck = threading.Event()
    verdict = hooked(asked, lambda _: stuck.wait() and "always").ask(seconds=0.01)
    assert not verdict and "did not answer" in verdict.why
    stuck.set()  # its late answer is nobody's


def test_a_hook_that_has_no_opinion_leaves_it_to_others_and_counts_as_no_answer(asked: Asked) -> None:
    assert hooked(asked, lambda _: None).ask().why.startswith("nobody was there")


# -- a notification


def stand_in(tmp_path: Path, script: str) -> str:
    """A program in notify-send's place: it writes its arguments down, one a line, and does what `script` says."""
    program = tmp_path / "notify-send"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/arguments\necho . >> {tmp_path}/calls\n{script}\n'
    )
    program.chmod(0o755)
    return str(program)


def notified(asked: Asked, program: str) -> Asked:
    asked.asks.add(DesktopWay(asked.asks, program))
    return asked


@pytest.mark.parametrize("answer", ["once", "sandbox", "always", "deny"])
def test_a_button_of_the_notification_answers(asked: Asked, tmp_path: Path, answer: str) -> None:
    verdict = notified(asked, stand_in(tmp_path, f"echo {answer}")).ask()
    assert verdict.answer == answer and asked.by == "notification"
    words = (tmp_path / "arguments").read_text().splitlines()
    assert [one for one in words if one.startswith("--action=")] == [
        "--action=once=Allow once", "--action=sandbox=Allow for this sandbox", "--action=always=Allow always",
        "--action=deny=Deny",
    ]  # fmt: skip
    assert words[words.index("--") :] == ["--", "sandbox vm-test asks", "A program wants to connect to a.test:443"]


def test_a_tenants_text_is_neither_option_nor_markup(asked: Asked, tmp_path: Path) -> None:
    subject = HostSubject("a.test", 443, "GET", "/<b>x</b>&amp;", Requester("--action=once=X\n<a href='x'>", "", 1))
    notified(asked, stand_in(tmp_path, "echo deny")).ask(subject)
    words = (tmp_path / "arguments").read_text().splitlines()
    assert len(words[words.index("--") :]) == 3
    assert words[-1] == (
        "'--action=once=X\\n&lt;a href=\\'x\\'&gt;' wants to connect to a.test:443: GET /&lt;b&gt;x&lt;/b&gt;&amp;amp;"
    )


def test_one_without_buttons_says_what_to_type(asked: Asked, tmp_path: Path) -> None:
    # An old one: it knows no --action. Then it shows the text, and the person types.
    program = stand_in(tmp_path, f'case "$*" in *--action=*) exit 1;; esac\ntouch {tmp_path}/shown')
    shown: list[Question] = []

    class Person:
        name = "person"

        def there(self) -> bool:
            return True

        def show(self, question: Question) -> None:
            shown.append(question)

        def over(self, question: Question) -> None:
            pass

    asked.asks.add(Person())
    way = DesktopWay(asked.asks, program)
    question = Question(7, HostSubject("a.test", 443), "vm-test", 60.0, 0.0)
    way._run(question)
    assert (tmp_path / "shown").exists()
    assert (tmp_path / "arguments").read_text().splitlines()[-1] == "answer with `sandbox allow 7` or `sandbox deny 7`"


def test_one_that_cannot_show_anything_is_nobody(asked: Asked, tmp_path: Path) -> None:
    assert notified(asked, stand_in(tmp_path, "exit 1")).ask().why.startswith("nobody was there")
    asked.over.clear()
    assert not notified(Asked(), str(tmp_path / "missing")).ask()


def test_a_notification_goes_away_when_somebody_else_answered(asked: Asked, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    program = stand_in(tmp_path, f"echo begun > {tmp_path}/begun\nexec sleep 1000")
    over: list[Verdict] = []
    notified(asked, program).asks.ask(HostSubject("a.test", 443), 60.0, over.append)
    (tmp_path / "begun").read_text()
    (way,) = asked.asks._ways
    assert isinstance(way, DesktopWay)
    with way._lock:  # the program may say something before its starter knows that it runs
        (shown,) = way._open.values()
    asked.asks.answer(7, "once", "terminal")
    assert over[0] and shown.wait(20) == -15


def test_what_a_notification_prints_beside_an_answer_is_ignored(asked: Asked, tmp_path: Path) -> None:
    verdict = notified(asked, stand_in(tmp_path, "echo yes; echo once")).ask(seconds=0.5)
    assert not verdict


def test_only_the_systems_own_program_is_used_and_only_on_a_desktop(tmp_path: Path) -> None:
    stand_in(tmp_path, "")
    planted = {"PATH": str(tmp_path), "DISPLAY": ":0", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}
    assert notifier(planted) != str(tmp_path / "notify-send")
    assert notifier({"DISPLAY": ":0"}) is None and notifier({}) is None
    assert notifier({"SANDBOX_NOTIFY": ""} | planted) is None
    assert notifier({"SANDBOX_NOTIFY": "/opt/mine"}) == "/opt/mine"
