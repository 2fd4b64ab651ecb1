"""Questions on the terminal of `sandbox run`, while it is free.

It is free when we are in its foreground, the command has it in line mode with echo (no editor, no full-screen program,
no shell's line editing, no password prompt), no alternate screen is up, and nobody is in the middle of typing a line.
While a question is shown, what the command prints is held back and what is typed is not passed on, so that a tenant can
neither draw over the question nor see the answer. It can print text that looks like a question, but nothing typed
into that answers one.
"""

from __future__ import annotations

import os
import re
import select
import termios
import tty
from collections import deque

from sandbox.asks.question import WAITING
from sandbox.cli.relay import in_background
from sandbox.errors import NotFound, SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.asks.pending import Asks
    from sandbox.asks.question import Question
    from sandbox.cli.relay import StdioRelay
    from sandbox.guest.process import Process
    from sandbox.sandbox import Sandbox

# Ends a control sequence that the command left open, and undoes colours, hidden text, margins, character sets, an
# update that the terminal holds back, and lines that do not wrap, which could hide the host at the end of a line.
RESET = b"\x18\x1b\\\x1b[!p\x1b[?2026l\x1b[?7h\x1b(B\x0f\x1b[0m\r\n"
# Restores the palette. A command that made our colours invisible could show a question of its own instead.
COLOURS = b"\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]R\x1b\\"
ANSWERS = {"o": "once", "s": "sandbox", "a": "always", "d": "deny"}
LONGEST = 16
_SCREEN = re.compile(rb"\x1b\[\?(?:[0-9;]*;)?(?:47|1047|1049)(?:;[0-9;]*)?([hl])")
_TAIL = 32
# Terminals ignore control characters in a sequence.
_SET = re.compile(rb"\x1b[\x00-\x1f\x7f]*\]|\xc2\x9d|(?<![\x80-\xff])\x9d")


class AlternateScreen:
    """Whether the command has switched to the alternate screen, judged by what it prints."""

    def __init__(self) -> None:
        self.up = False
        self.set = False  # whether it may have changed the palette
        self._tail = b""

    def see(self, data: bytes) -> None:
        """Looks at the next piece of output; a sequence may be cut anywhere."""
        whole = self._tail + data
        for found in _SCREEN.finditer(whole):
            self.up = found[1] == b"h"
        self.set = self.set or _SET.search(whole) is not None
        self._tail = whole[-_TAIL:]


class TerminalWay:
    """Asks on a terminal. The relay's thread does it, between two pieces of output."""

    name = "terminal"

    def __init__(self, asks: Asks, fds: tuple[int, int], relay: StdioRelay, process: Process) -> None:
        """`fds`: where the person types, and where they look."""
        self._asks = asks
        self._fd, self._out = fds
        self._relay = relay
        self._process = process
        self._line_mode = self._fd if process.terminal is None else process.terminal  # the command sets its mode
        self._screen = AlternateScreen()
        self._waiting: deque[Question] = deque()
        self._wakes, self._waking = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._waking, False)
        relay.when(self._wakes, self._woken)
        relay.between, relay.tap = self._turn, self._screen.see
        self._remove = asks.add(self)

    def close(self) -> None:
        """The command has ended."""
        self._remove()
        os.close(self._waking)
        os.close(self._wakes)

    # -- in any thread

    def there(self) -> bool:
        return self._free()

    def show(self, question: Question) -> None:
        self._waiting.append(question)
        self._wake()

    def over(self, question: Question) -> None:
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._waking, b".")
        except OSError:
            pass  # full: the relay is awake; closed: the command has ended

    def _free(self) -> bool:
        try:
            if in_background(self._fd):
                return False
            mode = termios.tcgetattr(self._line_mode)[3]
        except (OSError, termios.error):
            return False
        in_lines = bool(mode & termios.ICANON) and bool(mode & termios.ECHO)
        return in_lines and not self._screen.up and not self._relay.typing

    # -- in the relay's thread

    def _woken(self) -> None:
        try:
            os.read(self._wakes, 4096)
        except BlockingIOError:
            pass

    def _turn(self) -> None:
        """Asks the next question, if it still waits and the terminal is free now."""
        while self._waiting and self._waiting[0].state != WAITING:
            self._waiting.popleft()
        if not self._waiting:
            return
        self._relay.catch_up()  # output not copied yet may put the terminal to use
        if not self._free():
            # The other ways may still get an answer. If there are none, the question ends.
            self._asks.abstain(self._waiting[0], self)
        else:
            before = termios.tcgetattr(self._fd)
            try:
                # What was typed before the question was shown does not answer it.
                tty.setraw(self._fd, termios.TCSANOW)
                termios.tcflush(self._fd, termios.TCIFLUSH)
                self._dialogue(self._waiting[0])
            finally:
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def _dialogue(self, question: Question) -> None:
        reset = (RESET + COLOURS if self._screen.set else RESET).decode("latin-1")
        self._say(reset + _("sandbox: {question}").format(question=_.text(question.subject.text)))
        self._prompt(question)
        typed = ""
        poll = select.poll()
        for fd in (self._fd, self._wakes, self._process.fileno()):
            poll.register(fd, select.POLLIN)
        while question.state == WAITING:
            ready = {fd for fd, _event in poll.poll()}
            if self._wakes in ready:
                self._woken()
            if question.state != WAITING:
                self._say("\r\n" + (_("answered elsewhere") if question.answer else _("nobody answered in time")))
            elif self._fd in ready:
                data = self._keys()
                if not data:  # the terminal is gone
                    self._waiting.remove(question)
                    return self._asks.abstain(question, self)
                typed = self._typed(question, typed, data)
            elif self._process.fileno() in ready:
                break
        self._say("\r\n")

    def _keys(self) -> bytes:
        try:
            return os.read(self._fd, 4096)
        except OSError:
            return b""

    def _typed(self, question: Question, typed: str, data: bytes) -> str:
        """Takes keys and returns the unfinished line. Drops what follows a complete line."""
        for key in data.decode("latin-1"):
            if key in "\r\n":
                self._answer(question, typed.strip().lower())
                return ""
            if key == "\x03":
                self._relay.interrupt()  # first, so that the command does not continue after the refusal
                self._answer(question, "deny")
                return ""
            if key in "\x7f\b":
                self._say("\b \b" * bool(typed))
                typed = typed[:-1]
            elif " " < key <= "~" and len(typed) < LONGEST:
                self._say(key)
                typed += key
        return typed

    def _answer(self, question: Question, word: str) -> None:
        answer = ANSWERS.get(word, word)
        if answer in question.subject.answers:
            try:
                self._asks.answer(question.id, answer, "terminal")
            except NotFound:
                return  # somebody else was faster
            except SandboxError as problem:
                self._say(f"\r\n{_.text(problem)}")
            else:
                return
        self._prompt(question)

    def _prompt(self, question: Question) -> None:
        always = _("[o]nce, for this [s]andbox, [a]lways, or [d]eny? ")
        without = _("[o]nce, for this [s]andbox, or [d]eny? ")
        self._say("\r\n" + (always if "always" in question.subject.answers else without))

    def _say(self, text: str) -> None:
        left = text.encode("utf-8", "replace")
        while left:
            left = left[os.write(self._out, left) :]


def on_terminal(sandbox: Sandbox, relay: StdioRelay, process: Process) -> Callable[[], None]:
    """Asks on our terminal, if we have one, while `relay` runs. Returns a function that ends this."""
    asks = sandbox._asking().asks()
    if process.terminal is not None:
        return TerminalWay(asks, (0, 1), relay, process).close
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return lambda: None  # no terminal
    way = TerminalWay(asks, (fd, fd), relay, process)

    def end() -> None:
        way.close()
        os.close(fd)

    return end
