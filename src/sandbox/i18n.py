"""Messages in the user's language: English, 繁體中文 (zh-TW), 简体中文 (zh-CN).

    from sandbox.i18n import _

    print(_("{count} entries, none altered").format(count=n))          # translated here
    raise ConfigError("{name!r} is not a directory", name=name)        # English here, translated when it is printed
    print(_.text(error))                                               # like this

A message's English template is its key. Errors, decisions and notices carry a `Message` (errors.py): English text
that keeps its template and values. Logs, records and `str(error)` are English; `_.text(error)` formats the template's
translation with the same values. Text without values is its own template.

Translations are gettext `.po` files in `locale/`, read as they are. English loads none of them.
"""

from __future__ import annotations

import os

from sandbox.errors import Message, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES = ("en", "zh-TW", "zh-CN")


class Translator:
    """The language of one process. A process talks to one person, so this is kept once for the whole process."""

    def __init__(self) -> None:
        self.language: str | None = None
        self._messages: Mapping[str, str] | None = None

    def use(self, language: str | None) -> None:
        """Translates into `language` (`ui.language`) from now on. None takes it from the environment."""
        self.language = language or preferred_language(os.environ)
        self._messages = None

    def __call__(self, message: str) -> str:
        """The translation of a template, or the template itself if there is none."""
        if self.language is None:
            self.use(None)
        if self.language == "en":
            return message
        if self._messages is None:
            self._messages = catalogue(self.language or "en")
        return self._messages.get(message) or message

    def text(self, what: object) -> str:
        """An error or a message in the user's language. Text that has no translation stays English."""
        if isinstance(what, SandboxError):
            return what.text(self.text)
        if not isinstance(what, Message):
            return self(str(what))
        template = self(what.template)
        if not what.values:
            return template
        values = {name: self._value(value) for name, value in what.values.items()}
        try:
            return template.format(**values)
        except (KeyError, ValueError):
            return str(what)  # it came over RPC from another version

    def _value(self, value: object) -> object:
        return self.text(value) if isinstance(value, Message | SandboxError) else value


def preferred_language(environment: Mapping[str, str]) -> str:
    """The one of LANGUAGES that the environment asks for, in gettext's order of precedence."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        for locale in environment.get(name, "").split(":"):
            tag = locale.split(".")[0].split("@")[0].replace("-", "_").lower()
            if tag.startswith("zh"):
                return "zh-TW" if any(part in tag for part in ("tw", "hk", "mo", "hant")) else "zh-CN"
            if tag:
                return "en"
    return "en"


def catalogue(language: str) -> dict[str, str]:
    """English message -> translation, from the language's `.po` file."""
    name = os.path.join(os.path.dirname(__file__), "locale", f"{language}.po")
    with open(name, encoding="utf-8") as file:
        return read_po(file.read())


def read_po(text: str) -> dict[str, str]:
    """The messages of a `.po` file, continued strings joined, without the header (the empty msgid)."""
    import json

    messages: dict[str, str] = {}
    parts = {"msgid": "", "msgstr": ""}
    into = "msgid"
    for line in [*text.splitlines(), 'msgid ""']:
        keyword, _, rest = line.partition(" ")
        if keyword in parts:
            if keyword == "msgid":
                messages[parts["msgid"]] = parts["msgstr"]
                parts = {"msgid": "", "msgstr": ""}
            into, line = keyword, rest
        if line.startswith('"'):
            parts[into] += json.loads(line)
    messages.pop("", None)
    return messages


_ = Translator()
