"""`srt`: the command line of Anthropic's sandbox-runtime, with our isolation.

srt [-s settings.json] [-d] [--strict] [--control-fd N] [--] command…      srt [options] -c "shell string"
"""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import shown
from sandbox.cli.standard_streams import fill_standard_streams, leave
from sandbox.config.named_file import keep_from_tenants
from sandbox.errors import CommandError, ConfigError, SandboxError

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
  --strict              a closed home: only the system, the project and what is named is there
  --control-fd FD       read changed settings from a descriptor, one JSON object per line
  --version, --help

srt proxy [options]     the gate alone: an external decider decides every request (`srt proxy --help`)
"""
_OUR_ERROR = 1
_VALUES = {"-s": "--settings", "-c": "-c", "--settings": "--settings", "--control-fd": "--control-fd"}
# Settings whose mistakes show only when the walls are built, in srt's spelling.
_SPELLED = {
    "filesystem.allow_read": "filesystem.allowRead",
    "filesystem.allow_write": "filesystem.allowWrite",
    "filesystem.root": "the current directory",
    "network.authority_certificate": "network.tlsTerminate.caCertPath",
    "network.authority_key": "network.tlsTerminate.caKeyPath",
}


class Options:
    """The command line, read as the original reads it: options end at the first word that is not one."""

    def __init__(self, words: Sequence[str]) -> None:
        self.settings: str | None = None
        self.string: str | None = None
        self.debug = bool(os.environ.get("SRT_DEBUG"))
        self.strict = False
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
        if word.startswith("--"):
            name, equals, value = word.partition("=")
        else:
            name, value = word[:2], word[2:]
            equals = value
        if name in _VALUES:
            if not equals:
                if not rest:
                    raise SandboxError("{name} needs a value", name=name)
                value = rest.pop(0)
            self._value(_VALUES[name], value)
        elif name == "-d" and value:
            self.debug = True
            self._option(f"-{value}", rest)  # `-dc 'x'`
        elif word in ("-d", "--debug"):
            self.debug = True
        elif word == "--strict":
            self.strict = True
        elif word in ("--version", "-V", "--help", "-h"):
            self.show = "version" if "V" in word or "version" in word else "help"
        else:
            raise SandboxError("unknown option {word!r}; put the command's own options after `--`", word=word)

    def _value(self, name: str, value: str) -> None:
        if name == "-c":
            self.string = value
        elif name == "--control-fd":
            self.control = _descriptor(value)
        else:
            self.settings = value


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line. Returns the command's exit status, 127 or 126 if there is no such command, or 1 if it
    could not run. Without `argv`, runs the process's own and ends the process."""
    status = _status(sys.argv[1:] if argv is None else argv)
    if argv is None:
        leave(status)
    return status


def _status(words: Sequence[str]) -> int:
    fill_standard_streams()
    try:
        return _run(Options(words))
    except CommandError as problem:
        print(f"srt: {shown(problem, keep=chr(10))}", file=sys.stderr)
        return problem.exit_code  # 127 or 126, as a shell's
    except SandboxError as problem:
        if isinstance(problem, ConfigError) and problem.path in _SPELLED:
            problem = ConfigError(problem.problem, path=_SPELLED[problem.path])
        print(f"Error: {shown(problem, keep=chr(10))}", file=sys.stderr)
        return _OUR_ERROR
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader of our output has gone, as in `main.py`
        return 141
    except OSError as problem:  # about this machine: out of descriptors, memory or disk
        print(f"Error: {shown(problem)}", file=sys.stderr)
        return _OUR_ERROR


def _run(options: Options) -> int:
    if options.show is not None:
        from sandbox import __version__

        print(f"srt (agent-sandbox {__version__})" if options.show == "version" else USAGE, end="")
        return 0
    if options.command[:1] == ["proxy"] and options.string is None:
        from sandbox.cli.srt_proxy import main as proxy

        return proxy(options.command[1:])
    command = _command(options)
    config = settings(options.settings, strict=options.strict)
    if options.debug:
        _debug(f"configuration: {config.plain()}")
        _debug(f"Command string mode (-c): {options.string}" if options.string else f"Original command: {command}")
    from sandbox import readiness
    from sandbox.sandbox import Sandbox
    from sandbox.wiring import Wiring

    Wiring.soon += ("sandbox.cli.foreground",)
    readiness.hold()  # until the command has run for a moment (`cli/relay.py`)
    sandbox = Sandbox(config)
    told = _tell_notices(sandbox)
    try:
        with sandbox:
            from sandbox.cli.foreground import foreground

            if options.debug:
                sandbox.on_event(_show_refusal)
            if options.control is not None:
                _listen(options, options.control, sandbox)
            result = foreground(sandbox, command)
    finally:
        _tell_notices(sandbox, told)
        if sandbox._undone or sandbox._made:
            from sandbox.cli.run_summary import tell_made, tell_undone

            tell_undone(sandbox._undone)
            tell_made(sandbox._made)
    return result.exit_code


def _tell_notices(sandbox: Sandbox, told: int = 0) -> int:
    """Prints all but the first `told`; returns how many have been printed now."""
    for notice in sandbox.notices[told:]:
        print(f"srt: {shown(notice)}", file=sys.stderr)
    return len(sandbox.notices)


def _command(options: Options) -> list[str]:
    if options.string is not None:
        return [_shell(), "-c", options.string]
    if not options.command:
        raise SandboxError("No command specified. Use -c <command> or provide command arguments.")
    if options.command[0].startswith("windows-"):
        raise SandboxError("{command} is for Windows, which is not supported", command=options.command[0])
    if len(options.command) == 1 and any(letter.isspace() for letter in options.command[0]):
        # `srt "curl example.com"`, as in its manual: nobody means a program whose name contains spaces.
        return [_shell(), "-c", options.command[0]]
    return options.command


def _shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def settings(file: str | None, *, strict: bool = False) -> Config:
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
    if not content and file is None:
        from sandbox.guards.reserved_dirs import is_placeholder

        if is_placeholder(path):
            content = "{}"  # another sandbox, which may write in the home, has reserved the name
    if not content.strip():
        raise ConfigError("is empty; delete it or add settings", file=path)
    try:
        config = read_settings(content, strict=strict)
    except ConfigError as problem:
        raise ConfigError(problem.problem, path=problem.path, file=path) from None
    keep_from_tenants(config, path, config)
    return config


def read_settings(content: str, *, strict: bool = False) -> Config:
    """One JSON object of settings. Raises ConfigError with the setting's own name."""
    from sandbox.service import srt_config

    data: Any = {}
    if content != "{}":  # stands for no file, and saves loading `json`
        import json

        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as problem:
            raise ConfigError("is not valid JSON: {problem}", problem=problem) from None
    return srt_config(data, strict=strict, tell=_tell)


def _tell(line: str) -> None:
    print(f"srt: {shown(line)}", file=sys.stderr)


# -- while the command runs


def _descriptor(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 3:
        raise SandboxError("--control-fd must be 3 or higher")
    return int(text)


def _listen(options: Options, control: int, sandbox: Sandbox) -> None:
    """Applies every line of the control descriptor to the running sandbox's network."""
    from threading import Thread

    try:
        os.set_inheritable(control, False)
        stream = os.fdopen(control, "r", encoding="utf-8", errors="replace")
        if not stream.readable():
            raise OSError(None, "Bad file descriptor")
    except OSError as problem:
        raise SandboxError(
            "--control-fd {control} cannot be read: {reason}", control=control, reason=problem.strerror
        ) from None

    def listen() -> None:
        with stream:
            for line in stream:
                if line.strip():
                    _apply(line, sandbox, options, control)

    Thread(target=listen, name="srt-control", daemon=True).start()


def _apply(line: str, sandbox: Sandbox, options: Options, control: int) -> None:
    try:
        sandbox.update_network(read_settings(line, strict=options.strict).network.whole())
    except SandboxError as problem:
        print(f"Invalid config on control fd {control}: ignored, previous config still in force", file=sys.stderr)
        if options.debug:
            _debug(f"Invalid config on control fd (ignored): {problem}")
        return
    if options.debug:
        _debug(f"Config updated from control fd: {line.strip()}")


def _show_refusal(happened: dict[str, Any]) -> None:
    network = happened.get("network")
    if isinstance(network, dict) and network.get("blocked"):
        _debug(f"blocked {network['url']}: {network['reason']} ({network['rule']})")


def _debug(text: str) -> None:
    print(f"[SandboxDebug] {ascii(text)[1:-1]}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
