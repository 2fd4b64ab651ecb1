"""Name and path patterns, as gitignore writes them, turned into regular expressions. Pure text work.

    .env         a name at any depth                 .aws/        a directory of that name, and all in it
    *.pem        `*` and `?` stay within a name      /build       only at the top
    src/**/x     `**` crosses directories            [ab]         one of these characters

Matching ignores case and Unicode form on purpose: on a file system that folds case `.ENV` *is* `.env`, and
nobody needs a name that differs from a secret's only in that.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def checked(value: Any) -> list[str]:
    """A config value as a list of patterns. Raises ValueError for one that could not mean anything."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"must be a list of patterns, not {value!r}")
    for pattern in value:
        if not pattern.strip("/") or "\0" in pattern:
            raise ValueError(f"{pattern!r} is not a pattern")
        if pattern.startswith("!"):
            raise ValueError(f"{pattern!r}: exceptions go into allowed_patterns, without the '!'")
        if pattern.startswith("../") or "/../" in pattern:
            raise ValueError(f"{pattern!r}: a pattern cannot lead out of the root")
        if "[" in pattern:
            import re

            try:
                re.compile(Pattern(pattern).expression)
            except re.error as problem:
                raise ValueError(f"{pattern!r}: {problem}") from None
    return list(value)


def fold(text: str) -> str:
    """The form in which names are compared."""
    if text.isascii():
        return text.lower()
    import unicodedata

    # Compatibility form and format characters too: HFS+ ignores zero-width joiners, and a fullwidth dot fools
    # eyes.
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(sign for sign in plain if unicodedata.category(sign) != "Cf")


class Pattern:
    """One pattern taken apart: what it matches, and a literal that any match must contain."""

    __slots__ = ("text", "expression", "by_path", "dirs_only", "literal")

    def __init__(self, text: str) -> None:
        self.text = text
        body = fold(text)
        body = body[2:] if body.startswith("./") else body
        self.dirs_only = body.endswith("/")
        body = body.rstrip("/")
        while body.startswith("**/"):
            body = body[3:]
        anchored = body.startswith("/") or "/" in body
        if anchored and text.startswith("**/"):
            body, anchored = f"**/{body}", True
        self.by_path = anchored
        self.expression, self.literal = _expression(body.lstrip("/"))


def _expression(body: str) -> tuple[str, str]:
    """The regular expression of a pattern's body, and its longest run of plain characters."""
    import re

    out, run, longest, at = "", "", "", 0
    while at < len(body):
        sign = body[at]
        piece = ""
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
        else:
            escaped = sign == "\\" and at + 1 < len(body)
            sign, step = (body[at + 1], 2) if escaped else (sign, 1)
            out += re.escape(sign)
            run += sign
        if piece or sign == "/":
            longest, run = max(longest, run.strip("/"), key=len), ""
        out, at = out + piece, at + step
    return out, max(longest, run.strip("/"), key=len)


class Patterns:
    """Many patterns, compiled into one expression for names and one for paths below a root."""

    def __init__(self, patterns: list[str]) -> None:
        import re

        self.patterns = [Pattern(text) for text in patterns]
        names = [one for one in self.patterns if not one.by_path]
        paths = [one for one in self.patterns if one.by_path]
        # Without any pattern the expression must match nothing; an empty one would match everything.
        self.names = re.compile("|".join(f"(?:{one.expression})" for one in names) or r"(?!)")
        self.paths = re.compile("|".join(f"(?:{one.expression})" for one in paths) or r"(?!)")
        self.literals = sorted({one.literal for one in self.patterns})
        self.any_dirs_only = any(one.dirs_only for one in self.patterns)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def maybe(self, folded: str) -> bool:
        """Whether a match can be anywhere in `folded` names: a fast no for nearly every directory there
        is.
        """
        return any(literal in folded for literal in self.literals)

    def match(self, relative: str, is_dir: bool) -> str | None:
        """The pattern that matches this very path ("a/b/.env"), or None. Directories above are the caller's
        walk.
        """
        folded = fold(relative)
        name = folded[folded.rfind("/") + 1 :]
        if not self.names.fullmatch(name) and not self.paths.fullmatch(folded):
            return None
        import re

        for one in self.patterns:
            if one.dirs_only and not is_dir:
                continue
            if re.fullmatch(one.expression, folded if one.by_path else name):
                return one.text
        return None
