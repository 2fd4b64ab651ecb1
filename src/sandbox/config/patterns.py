"""Patterns for names and paths, as in gitignore, translated to regular expressions.

    .env         a name at any depth                 .aws/        a directory of that name, and all in it
    *.pem        `*` and `?` stay within a name      /build       only at the top
    src/**/x     `**` crosses directories            [ab]         one of these characters

Matching ignores case and Unicode form on purpose: on a file system that folds case, `.ENV` *is* `.env`.
"""

from __future__ import annotations

from sandbox.errors import Message, message_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def checked(value: Any) -> list[str]:
    """A config value as a list of patterns. Raises ValueError for an invalid one."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(Message("must be a list of patterns, not {value!r}", value=value))
    for pattern in value:
        if not pattern.strip("/") or "\0" in pattern:
            raise ValueError(Message("{pattern!r} is not a valid pattern", pattern=pattern))
        if pattern.startswith("!"):
            raise ValueError(
                Message("{pattern!r}: put exceptions in allowed_patterns, without the '!'", pattern=pattern)
            )
        if pattern.startswith("../") or "/../" in pattern:
            raise ValueError(Message("{pattern!r}: a pattern cannot point outside the root", pattern=pattern))
        if "[" in pattern:
            import re

            try:
                re.compile(Pattern(pattern).expression)
            except re.error as problem:
                raise ValueError(
                    Message("{pattern!r}: {problem}", pattern=pattern, problem=message_of(problem))
                ) from None
    return list(value)


def fold(path: str) -> str:
    """The form in which names and paths are compared."""
    return path.lower() if path.isascii() else "/".join(_fold_name(name) for name in path.split("/"))


def _fold_name(name: str) -> str:
    import unicodedata

    # Compatibility form, without format characters: HFS+ ignores zero-width joiners, and a fullwidth dot misleads
    # people. A character that this turns into a slash (U+FF0F) must not split the name.
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(sign for sign in plain if unicodedata.category(sign) != "Cf").replace("/", "_")


class Pattern:
    """One parsed pattern. `needle` occurs in every path "/name/name/" with a matching name."""

    __slots__ = ("text", "body", "anywhere", "by_path", "dirs_only", "needle", "plain")

    def __init__(self, text: str) -> None:
        self.text = text
        body = fold(text).removeprefix("./")
        self.dirs_only = body.endswith("/")
        body = body.rstrip("/")
        self.anywhere = body.startswith("**/")
        while body.startswith("**/"):
            body = body[3:]
        self.by_path = "/" in body
        self.body = body.lstrip("/")
        self.needle = _needle(body[body.rfind("/") + 1 :])
        self.plain = not any(sign in body for sign in "*?[\\")

    @property
    def expression(self) -> str:
        """As a regular expression, for a whole path when `by_path`, else for a name."""
        expression = _expression(self.body)
        return f"(?:[^/]+/)*{expression}" if self.by_path and self.anywhere else expression

    def matches(self, path: str, name: str) -> bool:
        """Whether it matches a folded path, whose last part is `name`."""
        if self.plain:
            if not self.by_path:
                return name == self.body
            return path == self.body or (self.anywhere and path.endswith(f"/{self.body}"))
        import re

        return re.fullmatch(self.expression, path if self.by_path else name) is not None


def _needle(name: str) -> str:
    """The longest run of plain characters in a pattern for names, with a slash where the name must begin or end."""
    if "\\" in name or "[" in name:
        return ""
    runs = f"/{name}/".replace("?", "*").split("*")
    return max(runs, key=len) if runs != ["/", "/"] else ""


def _expression(body: str) -> str:
    """The regular expression of a pattern's body."""
    import re

    out, at = "", 0
    while at < len(body):
        sign = body[at]
        if body.startswith("**/", at) and (at == 0 or body[at - 1] == "/"):
            piece, step = "(?:[^/]+/)*", 3
        elif body.startswith("**", at):
            piece, step = ".*", 2
        elif sign == "*":
            piece, step = "[^/]*", 1
        elif sign == "?":
            piece, step = "[^/]", 1
        elif sign == "[" and "]" in body[at + 2 :]:
            end = body.index("]", at + 2)
            negated = body[at + 1] in "!^"
            signs = body[at + 1 + negated : end].replace("--", "-")
            chosen = "".join(one if one == "-" else re.escape(one) for one in signs)
            piece, step = f"[{'^/' if negated else ''}{chosen}]", end + 1 - at
        elif sign == "\\" and at + 1 < len(body):
            piece, step = re.escape(body[at + 1]), 2
        else:
            piece, step = re.escape(sign), 1
        out, at = out + piece, at + step
    return out


class Patterns:
    """Many patterns. Cheap to make: an expression is compiled only for a name that could match."""

    def __init__(self, patterns: list[str]) -> None:
        self.patterns = [Pattern(text) for text in patterns]
        self.needles = sorted({one.needle for one in self.patterns})

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def match(self, relative: str, is_dir: bool) -> str | None:
        """The pattern that matches exactly this path ("a/b/.env"), or None. The caller checks the directories above."""
        folded = fold(relative)
        name = folded[folded.rfind("/") + 1 :]
        bounded = f"/{name}/"
        for one in self.patterns:
            if one.needle in bounded and (is_dir or not one.dirs_only) and one.matches(folded, name):
                return one.text
        return None
