"""The first run's files: a person's own settings and the answers to questions that a new installation asks.

Settings, never history and never credentials: a setting is copied only if neither its name nor its value looks like a
secret, a text only if no word in it does.
"""

from __future__ import annotations

import os

from sandbox.config.variables import secret_value, secret_word
from sandbox.profiles.layer import filled
from sandbox.state import writing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandbox.profiles.profile import Profile, Seed

MOST_FILES = 500


def seed(profile: Profile, top: str, words: dict[str, str], *, first: bool) -> None:
    """Writes the files that are not there yet into the kept home `top`, with `words` put into their answers.

    What cannot be read or understood is left out: the program then begins as if it were new."""
    person = os.path.expanduser("~")
    for path, one in profile.seed.items():
        if not (first or one.when):
            continue  # what the agent has deleted since stays deleted
        source = os.path.join(person, one.source or path)
        if path.endswith("/"):
            _directory(source, top, path.rstrip("/"))
        elif not os.path.lexists(f"{top}/{path}"):
            content = _content(source, path, one, words)
            if content is not None:
                writing.write(top, path, content)


def _directory(source: str, top: str, path: str) -> None:
    """The text files of a directory, links not followed."""
    if os.path.lexists(f"{top}/{path}"):
        return
    found = 0
    for directory, _, names in os.walk(source):
        for name in sorted(names):
            file = os.path.join(directory, name)
            text = None if os.path.islink(file) else _own_text(file)
            if text is None or (found := found + 1) > MOST_FILES:
                continue
            writing.write(top, f"{path}/{os.path.relpath(file, source)}", text.encode())


def _own_text(file: str) -> str | None:
    """A text of the person's; None when it is not there, not text, or holds what looks like a secret."""
    from sandbox.config.files import read_text
    from sandbox.errors import ConfigError

    try:
        text = read_text(file)
    except ConfigError:
        return None
    if text is None or any(secret_value(word.strip("\"'`,;()[]{}=:")) for word in text.replace("=", " ").split()):
        return None
    return text


def _content(source: str, path: str, one: Seed, words: dict[str, str]) -> bytes | None:
    ending = path.rpartition(".")[2]
    if one.when and not (one.only or one.answers) and os.path.lexists(source):
        return None  # the person's own file decides
    if ending not in ("json", "toml", "yaml", "yml") or not (one.only or one.answers or one.when):
        text = _own_text(source)
        return None if text is None else text.encode()
    settings = _chosen(_parsed(source, ending), one.only) if one.only else {}
    for variable, more in one.when.items():
        if os.environ.get(variable) and isinstance(more, dict):
            below = filled(more, words)
            merge(below, settings)
            settings = below
    merge(settings, filled(one.answers, words))
    return _text(settings, ending).encode() if settings else None


def _parsed(file: str, ending: str) -> dict[str, Any]:
    from sandbox.config.files import parse, read_text
    from sandbox.errors import ConfigError

    try:
        text = read_text(file)
        if text is None:
            return {}
        if ending == "toml":
            import tomllib

            return tomllib.loads(text)
        return parse(f"seed.{ending}", text).data
    except (ConfigError, ValueError):
        return {}


def _chosen(settings: dict[str, Any], only: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in only:
        value: Any = settings
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and not secret_word(path.rpartition(".")[2]):
            place = found
            *above, last = path.split(".")
            for name in above:
                place = place.setdefault(name, {})
            place[last] = without_secrets(value)
    return found


def without_secrets(value: Any) -> Any:
    """Plain data without settings that look like secrets, by name or by value."""
    if isinstance(value, dict):
        return {
            key: without_secrets(item)
            for key, item in value.items()
            if not secret_word(str(key)) and not (isinstance(item, str) and secret_value(item))
        }
    if isinstance(value, list):
        return [without_secrets(item) for item in value if not (isinstance(item, str) and secret_value(item))]
    return value


def merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    """Puts `more` into `into`; mappings are merged."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def _text(settings: dict[str, Any], ending: str) -> str:
    if ending == "toml":
        return toml(settings)
    if ending == "json":
        import json

        return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return str(yaml.safe_dump(settings, allow_unicode=True))


def toml(settings: dict[str, Any], above: str = "") -> str:
    """TOML of text, numbers, booleans, lists of them, and tables. What else a setting may hold is left out."""
    plain = {key: value for key, value in settings.items() if isinstance(value, str | bool | int | float | list)}
    lines = [f"{_quoted(key)} = {_quoted(value)}\n" for key, value in plain.items()]
    for key, value in settings.items():
        if isinstance(value, dict):
            name = f"{above}.{_quoted(key)}" if above else _quoted(key)
            lines.append(f"[{name}]\n{toml(value, name)}")
    return "".join(lines)


def _quoted(value: object) -> str:
    """As JSON, which TOML can read too, except for surrogate pairs."""
    import json

    return json.dumps(value, ensure_ascii=False)
