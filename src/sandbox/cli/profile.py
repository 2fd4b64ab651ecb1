"""`sandbox profile`: list, show and make profiles; and `sandbox NAME …`, which runs one."""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import print_json, shown, table
from sandbox.errors import NotFound, SandboxError
from sandbox.i18n import _
from sandbox.profiles.find import PACKAGED, file_of, load, names, own_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox profile list | show NAME | new NAME | forget [--gone] NAME | share-login NAME"
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    listing = actions.add_parser("list", help=_("list the profiles"))
    listing.add_argument("--json", action="store_true", help=_("print JSON"))
    showing = actions.add_parser("show", help=_("show what a profile may reach, keeps and passes on"))
    showing.add_argument("--json", action="store_true", help=_("print JSON"))
    making = actions.add_parser("new", help=_("write a profile of your own, as a template with comments"))
    forgetting = actions.add_parser("forget", help=_("delete what a profile's program has kept"))
    forgetting.add_argument("--gone", action="store_true", help=_("only for projects that no longer exist"))
    sharing = actions.add_parser("share-login", help=_("let all projects use the login that was made inside this one"))
    for action in (showing, making, forgetting, sharing):
        action.add_argument("name", help=_("the profile's name"))


def run(arguments: Namespace) -> int:
    if arguments.action == "list":
        return _list(arguments.json)
    if arguments.action == "show":
        return _show(arguments.name, arguments.json)
    if arguments.action == "forget":
        return _forget(arguments.name, arguments.gone)
    return _new(arguments.name) if arguments.action == "new" else _share_login(arguments.name)


def split(name: str, words: list[str]) -> tuple[list[str], list[str]]:
    """The words of `sandbox NAME words…`: options of `sandbox run`, and the program's command line.

    Words that are options of `sandbox run` count as such up to the first that is not, or to `--`. The profile may say
    that one of them is the program's own.
    """
    from sandbox.cli.options import leading
    from sandbox.cli.run import OPTIONS

    profile = load(name)
    count = leading(words, [one for one in OPTIONS if one.name not in profile.own_options])
    rest = words[count:]
    return words[:count], [profile.program, *(rest[1:] if rest[:1] == ["--"] else rest)]


def _list(as_json: bool) -> int:
    from sandbox.profiles.layer import find_program

    rows = []
    for name in names():
        try:
            profile = load(name)
        except SandboxError as problem:
            print(f"sandbox: {shown(_.text(problem))}", file=sys.stderr)
            continue
        try:
            program = find_program(profile, os.environ.get("PATH", ""))
        except SandboxError:
            program = ""
        rows.append((name, profile, program, str(file_of(name)).startswith(own_directory())))
    if as_json:
        print_json(
            [
                {"name": name, "description": one.description, "program": program or None, "own": own}
                for name, one, program, own in rows
            ]
        )
        return 0
    cells = ((name, program or _("not installed"), one.description) for name, one, program, _own in rows)
    print(table(cells, (_("PROFILE"), _("PROGRAM"), _("DESCRIPTION"))))
    return 0


def _show(name: str, as_json: bool) -> int:
    profile = load(name)
    data = _said(profile.whole())
    if profile.seed:
        data["seed"] = {path: _said(one) for path, one in data["seed"].items()}
    if as_json:
        print_json({"name": name, "file": file_of(name), **data})
        return 0
    import yaml

    if "seed" in data:  # a person need not read the defaults of each file
        data["seed"] = {path: {key: one for key, one in how.items() if one} for path, how in data["seed"].items()}
    print(f"# {name}: {file_of(name)}")
    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110).rstrip())
    return 0


def _said(data: dict[str, Any]) -> dict[str, Any]:
    """The data without keys that have no value."""
    return {key: value for key, value in data.items() if value not in (None, "", [], {})}


def _new(name: str) -> int:
    from sandbox.config.state_names import state_name
    from sandbox.profiles.template import template

    try:
        state_name(name)
    except ValueError as problem:
        raise SandboxError(problem.args[0]) from None
    file = os.path.join(own_directory(), f"{name}.yaml")
    if os.path.exists(file):
        raise SandboxError("{file} exists already", file=file)
    from sandbox.config.atomic_write import write_whole

    os.makedirs(own_directory(), mode=0o700, exist_ok=True)
    write_whole(file, template(name, like=os.path.exists(f"{PACKAGED}/{name}.json")))
    print(_("wrote {file}; edit it, then run `sandbox {name}`").format(file=file, name=name))
    return 0


def _forget(name: str, gone: bool) -> int:
    from sandbox.config.home import home
    from sandbox.config.rmtree import remove_tree
    from sandbox.config.state_names import plain_name

    place = os.path.join(home(), "state", name)
    if not plain_name(name) or not os.path.isdir(place):
        raise NotFound("nothing is kept for {name!r}", name=name)
    if gone:
        from sandbox.state.paths import of_gone_projects

        for project, directory in of_gone_projects(name):
            remove_tree(directory)
            print(shown(project))
        return 0
    remove_tree(place)
    print(_("deleted what {name} kept").format(name=name))
    return 0


def _share_login(name: str) -> int:
    """A login made inside is an account that a tenant chose: only its owner decides that other projects use it, too."""
    from sandbox.network.credentials.credential_store import share
    from sandbox.state.paths import project_word

    profile = load(name)
    here = project_word(os.path.realpath("."))
    if not [one for one in profile.credentials if share(one, here)]:
        raise NotFound("no login of {name} was made inside this project", name=name)
    print(_("all projects now use the login of {name} that was made inside this one").format(name=name))
    return 0
