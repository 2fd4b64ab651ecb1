"""`sandbox config`: shows and changes settings."""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import print_json, shown, table
from sandbox.config.home import user_config_file
from sandbox.config.layers import Resolved, present, resolve
from sandbox.config.model import Config
from sandbox.config.section import Field, Section, unknown_key
from sandbox.errors import ConfigError, SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any


def add(parser: ArgumentParser) -> None:
    parser.usage = (
        "sandbox config [--global] [--json] get KEY | set KEY VALUE | add KEY VALUE… | unset KEY | list | show | schema"
    )
    parser.add_argument(
        "--global", dest="everywhere", action="store_true", help=_("use your own config file instead of the project's")
    )
    parser.add_argument("--config", metavar="FILE", help=_("read this configuration file"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    get = actions.add_parser("get", help=_("print the effective value of a setting"))
    get.add_argument("key")
    change = actions.add_parser("set", help=_("change a setting, keeping comments"))
    change.add_argument("key")
    change.add_argument("value", help=_("a YAML value: true, 512m, [a, b]"))
    more = actions.add_parser("add", help=_("add an entry to a list"))
    more.add_argument("key")
    more.add_argument("values", nargs="+", metavar="value", help=_("the entry"))
    less = actions.add_parser("unset", help=_("remove a setting from the file, keeping comments"))
    less.add_argument("key")
    actions.add_parser("list", help=_("list settings that differ from the defaults"))
    actions.add_parser("show", help=_("list every setting and the layer that set it"))
    actions.add_parser("schema", help=_("print the JSON Schema of config files"))
    for one in (get, change, more, less, *(actions.choices[name] for name in ("list", "show"))):
        # After the action too, as `git config` allows.
        one.add_argument(
            "--global",
            dest="everywhere_too",
            action="store_true",
            help=_("use your own config file instead of the project's"),
        )
        one.add_argument("--json", dest="json_too", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    arguments.everywhere |= getattr(arguments, "everywhere_too", False)
    arguments.json |= getattr(arguments, "json_too", False)
    if arguments.action == "schema":
        from sandbox.config.schema import text

        print(text(), end="")
        return 0
    if arguments.action == "set":
        path = setting(arguments.key)
        return _set(path, _value(path, arguments.value), arguments.everywhere)
    if arguments.action == "unset":
        return _unset(setting(arguments.key), arguments.everywhere)
    resolved = _resolved(arguments)
    if arguments.action == "add":
        return _add(resolved, setting(arguments.key), arguments.values, arguments.everywhere)
    for ignored in resolved.warnings:
        print(f"sandbox: {shown(ignored)}", file=sys.stderr)
    if arguments.action == "get":
        return _get(resolved, setting(arguments.key), arguments.json)
    return _list(resolved, everything=arguments.action == "show", as_json=arguments.json)


def _resolved(arguments: Namespace) -> Resolved:
    # That directory has no project file, so only the user's own file applies.
    project = os.path.dirname(user_config_file()) if arguments.everywhere else "."
    return resolve({}, project=project, config_file=arguments.config)


def setting(key: str) -> str:
    """A setting's path, also in UDS's spelling (`sandbox.network.allow-git`). Raises ConfigError."""
    path = key.removeprefix("sandbox.").replace("-", "_")
    section: Any = Config
    names = path.split(".")
    for at, name in enumerate(names):
        if not (isinstance(section, type) and issubclass(section, Section)):
            if at:  # in a mapping such as environment.set every name is valid
                return path
        elif name not in section.fields:
            raise unknown_key(name, section.fields, ".".join(names[:at]))
        else:
            section = section.fields[name].type
    return path


def _get(resolved: Resolved, path: str, as_json: bool) -> int:
    value: Any = resolved.config.plain()
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise ConfigError("{name!r} is not set", name=name, path=path)
        value = value[name]
    if as_json:
        print_json({"key": path, "value": value, "origin": str(resolved.origin(path))})
    else:
        print(written(value))
    return 0


def _list(resolved: Resolved, *, everything: bool, as_json: bool) -> int:
    plain = resolved.config.plain()
    rows = [
        (path, _plain_at(plain, path), resolved.origin(path))
        for path, _one, _value in present(resolved.config, plain)
        if everything or path in resolved.sources
    ]
    if as_json:
        settings = {path: {"value": value, "origin": str(origin)} for path, value, origin in rows}
        print_json({"settings": settings, "ignored": [str(one) for one in resolved.warnings]})
    elif rows:
        print(table(((path, written(value), origin) for path, value, origin in rows)))
    return 0


def _plain_at(plain: Any, path: str) -> Any:
    for name in path.split("."):
        plain = plain[name]
    return plain


def _add(resolved: Resolved, path: str, values: list[str], everywhere: bool) -> int:
    one = _field(path)
    if one is None or not _is_list(one):
        raise ConfigError("is not a list; use `sandbox config set`", path=path)
    held: list[object] = _plain_at(resolved.config.plain(), path)
    new = [value for text in values for value in _value(path, text)]
    return _set(path, held + [value for value in new if value not in held], everywhere)


def _set(path: str, value: object, everywhere: bool) -> int:
    from sandbox.config import files
    from sandbox.config.edit import set_value

    file = _file(everywhere)
    held = _lock(everywhere)
    try:
        text = files.read_text(file, links=everywhere) or ""
        checked = _write(file, set_value(text, path.split("."), value, file), everywhere)
    finally:
        os.close(held)
    shown_value = written(_plain_at(checked.plain(), path))  # as it may be shown
    print(_("{key} = {value} in {file}").format(key=path, value=shown_value, file=file))
    if not everywhere:
        for ignored in resolve({}, project=".").warnings:
            if ignored.path == path:
                print(f"sandbox: {shown(ignored)}", file=sys.stderr)
                print(_("to change your own config file, use `sandbox config --global set`"), file=sys.stderr)
    return 0


def _unset(path: str, everywhere: bool) -> int:
    from sandbox.config import files
    from sandbox.config.edit import unset_value

    file = _file(everywhere)
    held = _lock(everywhere)
    try:
        text = files.read_text(file, links=everywhere) or ""
        changed = unset_value(text, path.split("."), file)
        if changed is None:
            raise ConfigError("is not set in this file", path=path, file=file)
        _write(file, changed, everywhere)
    finally:
        os.close(held)
    print(_("{key} is no longer set in {file}").format(key=path, file=file))
    return 0


def _file(everywhere: bool) -> str:
    return user_config_file() if everywhere else os.path.abspath(".sandbox/config.yaml")


def _lock(everywhere: bool) -> int:
    """A descriptor to close when the file is written: answers that are kept always change the user's own file too."""
    from sandbox.asks.stored_answers import lock

    return lock() if everywhere else os.open(os.devnull, os.O_RDONLY)


def _write(file: str, text: str, everywhere: bool) -> Config:
    """Checks the whole file before writing it: a file with a mistake would stop every later command."""
    from sandbox.cli.check import check
    from sandbox.config import files
    from sandbox.config.edit import write_file

    try:
        config = Config.read(files.parse(file, text).data)
        check(config, everywhere=everywhere)
    except SandboxError:
        print(_("{file} was not changed").format(file=file), file=sys.stderr)
        raise
    write_file(os.path.realpath(file) if everywhere else file, text)  # a link of the user's own stays one
    return config


def _field(path: str) -> Field | None:
    """The declaration of a setting; None in a mapping such as environment.set."""
    section: Any = Config
    one: Field | None = None
    for name in path.split("."):
        if not (isinstance(section, type) and issubclass(section, Section)):
            return None
        one = section.fields[name]
        section = one.type
    return one


def _is_list(one: Field) -> bool:
    return getattr(one.type, "__origin__", None) is list


def _value(path: str, text: str) -> Any:
    """What the user typed, as the setting's type: YAML, but `off` is a mode, not false, and one entry is a list."""
    import yaml

    one = _field(path)
    if one is not None and text in (one.choices or ()):
        return text
    try:
        value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        value = text
    if isinstance(value, int | float) and _is_text(one, path):
        value = text  # a port, for example: the shell would remove quotes around it
    return [value] if one is not None and _is_list(one) and not isinstance(value, list) else value


def _is_text(one: Field | None, path: str) -> bool:
    if one is None:
        return path.startswith("environment.set.")
    return one.type is str or one.type == list[str]


def written(value: object) -> str:
    """A value as in a config file, on one line."""
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
