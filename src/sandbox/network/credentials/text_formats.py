"""Where the strings are in an INI, netrc, YAML or env file, so that they can be replaced and nothing else changes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sandbox.network.secrets.field_paths import Keys


class Span(NamedTuple):
    """A string in a file: its position and its meaning."""

    keys: Keys
    value: str
    start: int
    end: int
    quoted: bool = False  # the span includes its quotation marks


COMMENT: Keys = ("#",)  # the keys of a comment; its value is what remains of it in the copy for inside


def spans(text: str, format: str) -> list[Span]:
    """Every string, in order. Raises ValueError."""
    return [span for span in _READERS[format](text) if span.keys is not COMMENT]


def replaced(text: str, format: str, new: Mapping[tuple[Keys, int], Any], *, comments: bool = True) -> str:
    """`text` with new strings, and with the text of its comments only if `comments`. Raises ValueError for a place that
    does not exist."""
    out, end, seen, left = [], 0, dict[Any, int](), dict(new)
    for span in sorted(_READERS[format](text), key=lambda one: one.start):
        if span.keys is COMMENT:
            if not comments:
                out += [text[end : span.start], span.value]
                end = span.end
            continue
        number = seen[span.keys] = seen.get(span.keys, -1) + 1
        if (span.keys, number) in left:
            value = left.pop((span.keys, number))
            if not isinstance(value, str):
                raise ValueError
            if span.start < end:
                continue  # an alias in YAML: the same string once more
            out += [text[end : span.start], json.dumps(value) if span.quoted else value]
            end = span.end
    if left:
        raise ValueError
    return "".join((*out, text[end:]))


_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for match in _LINE.finditer(text):
        yield match.start(), match[0].rstrip("\r\n")


def _trimmed(keys: Keys, text: str, start: int) -> Span:
    """The value in `text`, which begins at `start` of the file, without spaces and quotation marks around it."""
    value = text.strip()
    start += len(text) - len(text.lstrip())
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        if value[0] == '"' and "\\" in value:
            try:
                meant = json.loads(value)
            except ValueError:
                meant = value[1:-1]
            return Span(keys, str(meant), start, start + len(value), quoted=True)
        return Span(keys, value[1:-1], start + 1, start + len(value) - 1)
    return Span(keys, value, start, start + len(value))


_SWITCH = re.compile(r"[A-Za-z][a-z_-]{0,39}")  # an option that needs no value
_AFTER = re.compile(r"\s+[;#].*")


def _comment(at: int, line: str) -> Span:
    """A comment that takes up the whole `line`, which begins at `at`."""
    start = at + len(line) - len(line.lstrip())
    return Span(COMMENT, "#", start, at + len(line))


def _ini(text: str) -> Iterator[Span]:
    section: Keys = ()
    key: Keys | None = None
    for at, line in _lines(text):
        bare = line.strip()
        if not bare:
            continue
        if bare[0] in "#;":
            yield _comment(at, line)
        elif bare[0] == "[":
            if bare[-1] != "]":
                raise ValueError  # what follows a section's name may not be a comment
            section, key = (bare[1:-1].strip(),), None
        elif line[0] in " \t" and key is not None and section:
            yield from _words(key, line, at)  # the continuation of a value
        else:
            # An .npmrc has colons in its keys, and always an equals sign.
            sign = "=" if "=" in line else ":"
            name, found, value = line.partition(sign)
            key = (*section, name.strip())
            if not found and not _SWITCH.fullmatch(bare):
                raise ValueError  # we cannot tell what it is, so tenants do not get it
            # In an .npmrc, which has no sections, a comment can follow a value.
            after = None if section or value.lstrip()[:1] in ("'", '"') else _AFTER.search(value)
            if after is not None:
                place = at + len(name) + 1
                yield Span(COMMENT, "", place + after.start(), place + after.end())
                value = value[: after.start()]
            if value.strip():
                yield from _words(key, value, at + len(name) + 1)


def _words(key: Keys, text: str, start: int) -> Iterator[Span]:
    """A value. Several URLs are separate values, since each may have its own password."""
    words = list(re.finditer(r"\S+", text))
    if len(words) > 1 and all("://" in word[0] for word in words):
        yield from (Span(key, word[0], start + word.start(), start + word.end()) for word in words)
    else:
        yield _trimmed(key, text, start)


def _env(text: str) -> Iterator[Span]:
    for at, line in _lines(text):
        match = re.match(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=", line)
        if match is None:
            if line.strip() and line.strip()[0] != "#":
                raise ValueError  # for example the rest of a multi-line value
            yield _comment(at, line)
        elif line[match.end() :].strip():
            yield _trimmed((match[1],), line[match.end() :], at + match.end())


_NETRC = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s]+')


def _netrc(text: str) -> Iterator[Span]:
    machine, want = "", ""
    at = 0
    while match := _NETRC.search(text, at):
        at = match.end()
        word = match[0]
        if want == "machine":
            machine, want = word, ""
        elif want == "macdef":
            # A macro ends with an empty line. It may hold anything.
            end = text.find("\n\n", at)
            end = len(text) if end < 0 else end
            body = text[at:end]
            if body.strip():
                yield _trimmed(("macdef", word), body, at)
            at, want = end, ""
        elif want:
            yield (
                Span((machine, want), re.sub(r"\\(.)", r"\1", word[1:-1]), match.start(), match.end(), quoted=True)
                if (word[0] == '"' and len(word) > 1)
                else Span((machine, want), word, match.start(), match.end())
            )
            want = ""
        elif word.startswith("#"):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            yield Span(COMMENT, "#", match.start(), at)
        elif word == "default":
            machine = "default"
        elif word in ("machine", "macdef", "login", "user", "password", "account"):
            want = "login" if word == "user" else word
        else:
            raise ValueError


def _yaml(text: str) -> Iterator[Span]:
    import yaml

    try:
        # Not the C loader: its nodes do not say where they are.
        yield from _nodes(yaml.compose(text, Loader=yaml.SafeLoader), (), yaml, 0)
        end = 0
        for token in yaml.scan(text, Loader=yaml.SafeLoader):  # between its tokens there is space, or a comment
            for found in re.finditer(r"#[^\r\n]*", text[end : token.start_mark.index]):
                yield Span(COMMENT, "#", end + found.start(), end + found.end())
            end = max(end, token.end_mark.index)
    except yaml.YAMLError:
        raise ValueError from None


_YAML_TYPES = ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")


def _nodes(node: Any, keys: Keys, yaml: Any, depth: int) -> Iterator[Span]:
    if depth > 50:
        raise ValueError
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError
            yield from _nodes(value, (*keys, key.value), yaml, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            yield from _nodes(value, (*keys, str(at)), yaml, depth + 1)
    elif node is not None and node.tag.removeprefix("tag:yaml.org,2002:") not in _YAML_TYPES:
        raise ValueError  # `!!binary`, or a type that only its program knows: it may hold a string
    elif isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str":
        # Quotation marks make any placeholder a string. A block scalar's end is the next line's beginning.
        if node.style in ("|", ">"):
            raise ValueError
        yield Span(keys, node.value, node.start_mark.index, node.end_mark.index, quoted=True)


_READERS: dict[str, Callable[[str], Iterator[Span]]] = {"ini": _ini, "env": _env, "netrc": _netrc, "yaml": _yaml}
