"""`srt`: the command line of Anthropic's sandbox-runtime, with our isolation.

srt [-s settings.json] [-d] [--control-fd N] [--] command…      srt [options] -c "shell string"
"""

from __future__ import annotations

import os
import sys

from sandbox.cli.main import fill_standard_streams
from sandbox.cli.output import shown
from sandbox.errors import ConfigError, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sandbox.config.model import Config
    from sandbox.sandbox import Sandbox

USAGE = """\
usage: srt [options] [--] command…

Run a command in a sandbox with network and filesystem restrictions.

  -s, --settings FILE   settings (default: ~/.srt-settings.json)
  -c COMMAND            run a shell string
  -d, --debug           show the configuration, and what is refused while the command runs
  --control-fd FD       read changed settings from a descriptor, one JSON object per line
  --version, --help
"""
_OUR_ERROR = 1


class Options:
    """The command line, read as the original reads it: options end at the first word that is not one."""

    def __init__(self, words: Sequence[str]) -> None:
        self.settings: str | None = None
        self.string: str | None = None
        self.debug = False
        self.control: int | None = None
        self.show: str | None = None
        rest = list(words)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            self._option(word, rest)
        self.command = rest

    def _option(self, word: str, rest: list[str]) -> None:
        name, equals, value = word.partition("=")
        if name in ("-s", "--settings", "-c", "--control-fd"):
            if not equals:
                if not rest:
                    raise SandboxError("{name} needs a value", name=name)
                value = rest.pop(0)
            if name == "-c":
                self.string = value
            elif name == "--control-fd":
                self.control = _descriptor(value)
            else:
                self.settings = value
        elif word in ("-d", "--debug"):
            self.debug = True
        elif word in ("--version", "-V", "--help", "-h"):
            self.show = "version" if "V" in word or "version" in word else "help"
        else:
            raise SandboxError("unknown option {word!r}; put the command's own options after `--`", word=word)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line. Returns the command's exit status, or 1 if it could not run."""
    fill_standard_streams()
    try:
        return _run(Options(sys.argv[1:] if argv is None else argv))
    except SandboxError as problem:
        print(f"Error: {shown(problem, keep=chr(10))}", file=sys.stderr)
        return _OUR_ERROR
    except KeyboardInterrupt:
        return 130


def _run(options: Options) -> int:
    if options.show is not None:
        from sandbox import __version__

        print(f"srt (agent-sandbox {__version__})" if options.show == "version" else USAGE, end="")
        return 0
    command = _command(options)
    config = settings(options.settings)
    if options.debug:
        _debug(f"configuration: {config.plain()}")
    from sandbox.cli.foreground import foreground
    from sandbox.sandbox import Sandbox

    with Sandbox(config) as sandbox:
        if options.debug:
            sandbox.on_event(_show_refusal)
        if options.control is not None:
            _listen(options.control, sandbox)
        return foreground(sandbox, command).exit_code


def _command(options: Options) -> list[str]:
    if options.string is not None:
        return [_shell(), "-c", options.string]
    if not options.command:
        raise SandboxError("no command; write it after the options or pass it with -c")
    if options.command[0].startswith("windows-"):
        raise SandboxError("{command} is for Windows, which is not supported", command=options.command[0])
    if len(options.command) == 1 and any(letter.isspace() for letter in options.command[0]):
        # `srt "curl example.com"`, as in its manual: nobody means a program whose name contains spaces.
        return [_shell(), "-c", options.command[0]]
    return options.command


def _shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def settings(file: str | None) -> Config:
    """The settings as our configuration. A file that was named, or exists, must be valid: using the defaults instead
    would drop its rules. Raises ConfigError."""
    path = file or os.path.expanduser("~/.srt-settings.json")
    try:
        with open(path, encoding="utf-8") as opened:
            content = opened.read()
    except FileNotFoundError:
        if file is not None:
            raise ConfigError("does not exist", file=path) from None
        content = "{}"
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError("cannot be read: {problem}", problem=problem, file=path) from None
    if not content.strip():
        raise ConfigError("is empty; delete it or add settings", file=path)
    try:
        return read_settings(content)
    except ConfigError as problem:
        raise ConfigError(problem.problem, path=problem.path, file=path) from None


def read_settings(content: str) -> Config:
    """One JSON object of settings. Raises ConfigError with the setting's own name."""
    import json

    from sandbox.service import srt_config

    try:
        data = json.loads(content)
    except ValueError as problem:
        raise ConfigError("is not valid JSON: {problem}", problem=problem) from None
    return srt_config(data)


# -- while the command runs


def _descriptor(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 3:
        raise SandboxError("--control-fd must be 3 or higher")
    return int(text)


def _listen(control: int, sandbox: Sandbox) -> None:
    """Applies every line of the control descriptor to the running sandbox's network."""
    from threading import Thread

    try:
        os.set_inheritable(control, False)
        stream = os.fdopen(control, "r", encoding="utf-8")
    except OSError as problem:
        raise SandboxError(
            "--control-fd {control} cannot be read: {reason}", control=control, reason=problem.strerror
        ) from None

    def listen() -> None:
        with stream:
            for line in stream:
                if line.strip():
                    _apply(line, sandbox, control)

    Thread(target=listen, name="srt-control", daemon=True).start()


def _apply(line: str, sandbox: Sandbox, control: int) -> None:
    try:
        sandbox.update_network(read_settings(line).network.whole())
    except SandboxError as problem:
        kept = "the settings before it stay in force"
        print(f"srt: a line on descriptor {control} makes no sense, {kept}: {problem}", file=sys.stderr)


def _show_refusal(happened: dict[str, Any]) -> None:
    network = happened.get("network")
    if isinstance(network, dict) and network.get("blocked"):
        _debug(f"blocked {network['url']}: {network['reason']} ({network['rule']})")


def _debug(text: str) -> None:
    print(f"[SandboxDebug] {ascii(text)[1:-1]}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
