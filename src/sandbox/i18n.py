"""What people read, in their language: English, 繁體中文 (zh-TW), 简体中文 (zh-CN).

    from sandbox.i18n import _
    print(_("{count} entries, none altered").format(count=n))

Messages are written in English in the code and are their own keys; translations are gettext `.po` files in
`locale/`, read as they are, so there is no compiled copy that could fall out of step. In English nothing is
loaded at all. Library errors are raised in English (logs and scripts search for them) and translated only
where they are printed: `said(problem)` finds the template that the English text was made from.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES = ("en", "zh-TW", "zh-CN")


class Messages:
    """The language one process speaks. A process talks to one person, so this is the one thing it keeps for
    all.
    """

    def __init__(self) -> None:
        self.language: str | None = None
        self._messages: Mapping[str, str] | None = None

    def use(self, language: str | None) -> None:
        """Speaks `language` (`ui.language`) from now on; None follows LANGUAGE, LC_ALL, LC_MESSAGES, LANG."""
        self.language = language or spoken(os.environ)
        self._messages = None
        if self.language != "en":
            import argparse

            argparse._ = self.__call__  # type: ignore[attr-defined]  # its own messages ("usage: ") go through this name

    def __call__(self, message: str) -> str:
        if self.language is None:
            self.use(None)
        if self.language == "en":
            return message
        if self._messages is None:
            self._messages = catalogue(self.language or "en")
        return self._messages.get(message) or message

    def said(self, problem: object) -> str:
        """An error's text in the person's language, as far as its template is known. What stands before the problem
        itself (file, line, setting) stays."""
        text = str(problem)
        whole = self(text)
        if self.language == "en" or whole != text:
            return whole
        core = str(getattr(problem, "problem", None) or getattr(problem, "reason", None) or text)
        return text.replace(core, self._from_template(core), 1)

    def _from_template(self, text: str) -> str:
        assert self._messages is not None
        if text in self._messages:
            return self._messages[text] or text
        # The longest template that fits is the one it was made from: "{v0} does not exist" fits too much.
        for template in sorted(self._messages, key=len, reverse=True):
            if "{" in template and (found := _made_from(template, text)) is not None:
                return self._messages[template].format(**found)
        return text


def spoken(environment: Mapping[str, str]) -> str:
    """The language of ours that the environment asks for, in gettext's order of precedence."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        for asked in environment.get(name, "").split(":"):
            tag = asked.split(".")[0].split("@")[0].replace("-", "_").lower()
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
    """The messages of a `.po` file. Continued strings are joined; the header (empty msgid) is left out."""
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


def _made_from(template: str, text: str) -> dict[str, str] | None:
    """What stood in the template's braces, when `text` was made from it."""
    import re

    pieces = re.split(r"\{(\w+)\}", template)
    pattern, seen = "", set[str]()
    for at, piece in enumerate(pieces):
        if at % 2 == 0:
            pattern += re.escape(piece)
        else:
            pattern += f"(?P={piece})" if piece in seen else f"(?P<{piece}>.*?)"
            seen.add(piece)
    found = re.fullmatch(pattern, text, re.DOTALL)
    return found.groupdict() if found else None


_ = Messages()
