"""The `sandbox` command. Loads only the module of the command that is run."""

from __future__ import annotations

import os
import sys

from sandbox.cli.command_table import ALIASES, COMMANDS
from sandbox.cli.standard_streams import fill_standard_streams, leave
from sandbox.errors import SandboxError
from sandbox.i18n import LANGUAGES, _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence
    from typing import Any

OUR_ERROR = 125  # as for `env`, `timeout` and docker: the error is ours, not the command's
HOOK_ERROR = 2  # Claude Code takes this as "blocked"; with any other status it would go on without the hook


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns the exit status. Without `argv`, runs the process's own and ends the process."""
    status = _run(list(sys.argv[1:] if argv is None else argv))
    if argv is None:
        leave(status)
    return status


def _run(words: list[str]) -> int:
    fill_standard_streams()
    try:
        _.use(_chosen_language())
        status = _dispatch(words)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, so that a full disk is still an error
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; Python must not complain about that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except (SandboxError, OSError) as problem:
        # An OSError here is about this machine (out of descriptors, memory or disk): print one line, as for our own.
        from sandbox.cli.output import shown

        if words[:1] == ["run"] and not isinstance(problem, OSError) and getattr(problem, "usage", False):
            _usage_as_json(words, problem)
        # It may contain a name from the project.
        print(f"sandbox: {shown(_.text(problem), keep=chr(10))}", file=sys.stderr)
        return getattr(problem, "exit_code", HOOK_ERROR if words[:1] == ["hook"] else OUR_ERROR)


def _usage_as_json(words: list[str], problem: SandboxError) -> None:
    """Reports a mistake in the options of `run --json` as JSON too. Only words before the command count."""
    options = words[1 : words.index("--")] if "--" in words else words[1:]
    if "--json" in options:
        from sandbox.cli.as_json import failed

        failed(problem)


def _chosen_language() -> str | None:
    """`ui.language` of the user's own file. Only that line is read, because help is printed before the config is."""
    from sandbox.config.home import user_config_file

    try:
        with open(user_config_file(), encoding="utf-8", errors="replace") as file:
            found = [line.partition(":")[2] for line in file if line.lstrip().startswith("language:")]
    except OSError:
        return None
    language = found[0].split("#")[0].strip().strip("'\"") if found else ""
    return language if language in LANGUAGES else None


def _dispatch(words: list[str]) -> int:
    name = words[0] if words else "--help"
    name = ALIASES.get(name, name)
    if name in COMMANDS:
        return _command(name, words[1:])
    if not name.startswith("-"):
        from sandbox.profiles.find import file_of

        if file_of(name) is not None:
            from sandbox.cli.profile import split

            options, command = split(name, words[1:])
            return _command("run", [*options, "--profile", name, "--", *command])
    if name in ("--version", "-V"):
        from sandbox import __version__

        print(f"sandbox {__version__}")
        return 0
    if name in ("--help", "-h", "help"):
        about = ALIASES.get(words[1], words[1]) if words[1:] else ""
        print(parser_of(about).format_help().rstrip() if about in COMMANDS else usage())
        return 0
    import difflib

    from sandbox.profiles.find import names

    near = difflib.get_close_matches(name, [*COMMANDS, *names()], n=1)
    if near:
        raise SandboxError("unknown command {name!r}; did you mean `sandbox {near}`?", name=name, near=near[0])
    raise SandboxError("unknown command {name!r}; see `sandbox --help`", name=name)


def _command(name: str, words: list[str]) -> int:
    command = _module(name)
    if not words and hasattr(command, "run_plain"):
        return int(command.run_plain())  # nothing to parse: argparse would take longer than the command
    arguments = command.parse(words) if hasattr(command, "parse") else None
    return int(command.run(arguments or parser_of(name).parse_args(words)))


def _module(name: str) -> Any:
    module = f"sandbox.cli.{COMMANDS[name][0]}"
    __import__(module)  # without importlib, which would load `warnings` too
    return sys.modules[module]


def parser_of(name: str) -> ArgumentParser:
    """The parser of one command."""
    from sandbox.cli.parser import parser_for

    return parser_for(name, COMMANDS[name][1], _module(name))


def usage() -> str:
    """The text of `sandbox --help`."""
    lines = [f"  {name:<12} {_(summary)}" for name, (_module, summary) in COMMANDS.items()]
    return "\n".join(
        (
            _("usage: sandbox COMMAND [options]"),
            _("       sandbox claude|codex|gemini|… [options] [arguments…]   (`sandbox profile list`)"),
            "",
            _("Run code you do not trust. It sees only the files, variables and hosts you choose."),
            "",
            *lines,
            "",
            _("`sandbox COMMAND --help` describes a command. Try: sandbox run -- sh -c 'ls -la ~; cat ~/.ssh/id_rsa'"),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
