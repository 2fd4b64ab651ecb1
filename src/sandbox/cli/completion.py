"""`sandbox completion SHELL`: completion of commands and options, written from the commands' own parsers."""

from __future__ import annotations

from sandbox.cli.main import COMMANDS, parser_of
from sandbox.words import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

BASH = """\
_sandbox() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}}
    if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W "{commands}" -- "$word")); return; fi
    case "$word" in
        -*) case "$command" in
{cases}
            esac ;;
        *) COMPREPLY=($(compgen -f -- "$word") $(compgen -c -- "$word")) ;;
    esac
}}
complete -o filenames -F _sandbox sandbox
"""


def add(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help=_("whose completion to print"))


def run(arguments: Namespace) -> int:
    options = {name: _options(name) for name in COMMANDS}
    if arguments.shell == "fish":
        for name, words in options.items():
            about = COMMANDS[name][1].replace("'", "")
            print(f"complete -c sandbox -n __fish_use_subcommand -a {name} -d '{about}'")
            for word in words:
                print(f"complete -c sandbox -n '__fish_seen_subcommand_from {name}' -l {word.removeprefix('--')}")
        return 0
    if arguments.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    cases = "\n".join(
        f'            {name}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word")) ;;'
        for name, words in options.items()
    )
    print(BASH.format(commands=" ".join(COMMANDS), cases=cases), end="")
    return 0


def _options(name: str) -> list[str]:
    return [word for action in parser_of(name)._actions for word in action.option_strings if word.startswith("--")]
