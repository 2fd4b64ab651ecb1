"""Ways to reach the owner that need no terminal: clients that watch, the owner's own code, a desktop notification."""

from __future__ import annotations

import os
from threading import Lock, Thread

from sandbox.asks.question import DENY, WAITING, bounded
from sandbox.asks.stored_answers import watched
from sandbox.errors import Denied, Message, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from subprocess import Popen
    from typing import Any

    from sandbox.asks.pending import Asks
    from sandbox.asks.question import Question

# A program that a project planted on PATH would run outside the walls: only the system's own places count.
NOTIFIERS = tuple(
    f"{place}/notify-send" for place in ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")
)
NOTIFIER = "SANDBOX_NOTIFY"  # names another program; empty: no notifications


class Watchers:
    """Clients that follow `ask` events and answer: `count()` of them here, and `sandbox asks` for all sandboxes."""

    name = "watch"

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count

    def there(self) -> bool:
        return self._count() > 0 or watched()

    def show(self, question: Question) -> None:
        """The `ask` event has reached them already."""

    def over(self, question: Question) -> None:
        """Another `ask` event says so."""


class HookWay:
    """`on_ask` of the owner's hooks: returns an answer, or None to leave it to others. A failure denies.

    The reason of a `Denied` is shown to the tenant, like that of any refusal."""

    name = "on_ask"

    def __init__(self, asks: Asks, hook: Callable[[Any], Any]) -> None:
        self._asks = asks
        self._hook = hook

    def there(self) -> bool:
        return True

    def show(self, question: Question) -> None:
        Thread(target=self._run, args=(question,), name="sandbox-on-ask", daemon=True).start()

    def over(self, question: Question) -> None:
        """A hook that is still running answers too late."""

    def _run(self, question: Question) -> None:
        by = self.name
        try:
            answer = self._called(question)
            if answer is None:
                return self._asks.abstain(question, self)
            if answer not in question.subject.answers:
                answer, by = DENY, f"{self.name} (no answer that there is)"
        except Denied as problem:
            question.said = bounded(" ".join(str(problem.reason).split()))
            answer, by = DENY, f"{self.name} ({type(problem).__name__})"
        except Exception as problem:  # noqa: BLE001 - whatever a hook raises denies
            # Only the type: the message may contain what the hook was reading.
            answer, by = DENY, f"{self.name} ({type(problem).__name__})"
        give(self._asks, question, answer, by)

    def _called(self, question: Question) -> object:
        from inspect import iscoroutine

        answer = self._hook(question.ask)
        if iscoroutine(answer):
            import asyncio

            async def waited() -> object:
                return await asyncio.wait_for(answer, question.seconds)

            return asyncio.run(waited())
        return answer


class DesktopWay:
    """A notification with a button for each answer, by `notify-send`; without buttons, it says what to type."""

    name = "notification"

    def __init__(self, asks: Asks, program: str) -> None:
        self._asks = asks
        self._program = program
        self._open: dict[int, Popen[bytes]] = {}
        self._lock = Lock()

    def there(self) -> bool:
        return True

    def show(self, question: Question) -> None:
        Thread(target=self._run, args=(question,), name="sandbox-notify", daemon=True).start()

    def over(self, question: Question) -> None:
        with self._lock:
            shown = self._open.pop(question.id, None)
        if shown is not None and shown.poll() is None:
            shown.terminate()

    def _run(self, question: Question) -> None:
        from sandbox.i18n import _

        labels = {"once": _("Allow once"), "sandbox": _("Allow for this sandbox"), "always": _("Allow always")}
        labels["deny"] = _("Deny")
        buttons = [f"--action={one}={labels[one]}" for one in question.subject.answers]
        status, said = self._notify(question, buttons, "")
        if status == 0 and said in question.subject.answers:
            return give(self._asks, question, said, self.name)
        if status != 0 and question.state == WAITING:
            # An older notify-send, without buttons.
            hint = _("answer with `sandbox allow {id}` or `sandbox deny {id}`").format(id=question.id)
            status, _said = self._notify(question, [], hint)
        if status != 0:
            self._asks.abstain(question, self)

    def _notify(self, question: Question, buttons: Sequence[str], hint: str) -> tuple[int, str]:
        """Shows it and waits until it is gone. Returns the program's exit status and the first word it printed."""
        import subprocess

        from sandbox.i18n import _

        title = _("sandbox {id} asks").format(id=question.sandbox)
        body = markup(_.text(question.subject.text)) + (f"\n{markup(hint)}" if hint else "")
        time = f"--expire-time={int(question.seconds * 1000)}"
        words = [self._program, "--app-name=sandbox", "--urgency=critical", time, *buttons, "--", title, body]
        try:
            with self._lock:
                if question.state != WAITING:
                    return 0, ""
                shown = self._open[question.id] = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            with shown:
                assert shown.stdout is not None
                said = shown.stdout.read(64)
            return shown.returncode, said.decode("ascii", "replace").strip()
        except OSError:
            return 127, ""
        finally:
            with self._lock:
                self._open.pop(question.id, None)


def notifier(environment: dict[str, str] | os._Environ[str]) -> str | None:
    """The program that shows notifications, where there is a desktop to show them on."""
    if NOTIFIER in environment:
        return environment[NOTIFIER] or None
    bus = environment.get("DBUS_SESSION_BUS_ADDRESS") or os.path.exists(f"{environment.get('XDG_RUNTIME_DIR', '')}/bus")
    screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    return next((one for one in NOTIFIERS if os.access(one, os.X_OK)), None) if bus and screen else None


def markup(text: str) -> str:
    """Text for a notification's body, which may hold markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def give(asks: Asks, question: Question, answer: str, by: str) -> None:
    """Answers, unless somebody else did. What cannot be written to the config is allowed for this sandbox alone."""
    try:
        asks.answer(question.id, answer, by)
    except SandboxError as problem:
        if question.state == WAITING and answer == "always":
            give(asks, question, "sandbox", Message("{by} (not kept: {problem})", by=by, problem=problem))
