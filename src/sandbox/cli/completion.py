"""`sandbox completion SHELL`: completion of commands and options, written from the commands' own parsers."""

from __future__ import annotations

from importlib import import_module

from sandbox.cli.command_table import COMMANDS
from sandbox.cli.parser import parser_for
from sandbox.i18n import _
from sandbox.profiles.find import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

BASH = """\
_sandbox() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=
    if [ "$COMP_CWORD" = 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
        case "$word" in
            -*) ;;
            *) case "$words" in
                   *@ids*) words=$(sandbox list 2>/dev/null | sed -n 's/^\\(vm-[0-9a-f]*\\) .*/\\1/p') ;;
                   *@command*) COMPREPLY=($(compgen -f -- "$word") $(compgen -c -- "$word")); return ;;
               esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o filenames -F _sandbox sandbox
"""


def add(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help=_("the shell"))


def run(arguments: Namespace) -> int:
    words = {name: _words(name) for name in COMMANDS}
    if arguments.shell == "fish":
        for name, known in words.items():
            about = COMMANDS[name][1].replace("'", "")
            print(f"complete -c sandbox -n __fish_use_subcommand -a {name} -d '{about}'")
            for word in known:
                kind = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
                if not word.startswith("@"):
                    print(f"complete -c sandbox -n '__fish_seen_subcommand_from {name}' {kind}")
        for name in names():
            print(f"complete -c sandbox -n __fish_use_subcommand -a {name} -d profile")
        return 0
    if arguments.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    cases = "\n".join(f'            {name}) words="{" ".join(known)}" ;;' for name, known in words.items())
    print(BASH.format(commands=" ".join((*COMMANDS, *names())), cases=cases), end="")
    return 0


def _words(name: str) -> list[str]:
    """What can follow a command: its options, its actions; @ids for sandboxes, @command for any command or file."""
    found: list[str] = []
    module, summary = COMMANDS[name]
    for action in parser_for(name, summary, import_module(f"sandbox.cli.{module}"))._actions:
        found += [word for word in action.option_strings if word.startswith("--")]
        if not action.option_strings:
            found += action.choices or {"id": ["@ids"], "command": ["@command"]}.get(action.dest, [])
    return found
