"""Reads one config file: plain data, and the line of each value.

The agent may have written the project's file, so it is hostile input. It must be a regular file of bounded size,
without aliases (a few lines of them expand to gigabytes) and without duplicate keys (two readers would disagree on
which one counts).
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.errors import ConfigError, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 2**20
DEEPEST = 32
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # non-blocking: a FIFO planted under that name must not hang us
NO_VALUE = Message("contains an invalid value: a date, number or tag that cannot be read")
IS_LINK = Message("is a symbolic link; a project's settings must be in the project itself")


class SourceFile:
    """One file's content: `data` as plain values, `lines` by dotted path ("network.allowed_hosts[0]")."""

    __slots__ = ("file", "data", "lines", "spelled")

    def __init__(self, file: str, data: dict[str, Any], lines: dict[str, int]) -> None:
        self.file = file
        self.data = data
        self.lines = lines
        self.spelled: dict[str, str] = {}  # our path -> the file's, where it is written in a dialect

    def line(self, path: str) -> int | None:
        """The line of `path`, or of the nearest setting around it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None

    def error(self, problem: ConfigError, path: str, at: str) -> ConfigError:
        """`problem` with this file and line, and with both paths as the file spells them."""
        return ConfigError(problem.problem, path=path, file=self.file, line=self.line(at))


def read(file: str, *, links: bool = True) -> SourceFile | None:
    """The file's content; None when there is no such file. Raises ConfigError with file and line."""
    text = read_text(file, links=links)
    return None if text is None else parse(file, text)


def read_text(file: str, *, links: bool = True) -> str | None:
    """The file's text, or None when it does not exist. `links`: whether it and its directory may be symbolic links."""
    try:
        descriptor = os.open(file, FLAGS) if links else _open_itself(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise ConfigError("cannot be read: {reason}", reason=problem.strerror, file=file) from problem
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError("is not a regular file", file=file)
        with open(descriptor, "rb", closefd=False) as opened:
            content = opened.read(LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(content) > LARGEST:
        raise ConfigError("is larger than {largest} bytes", largest=LARGEST, file=file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8 text", file=file) from None


def _open_itself(file: str) -> int:
    """Opens a file of the project, never one that a link points to. An error message quotes the text around the
    mistake, so it would show an agent a line of a file that it cannot read itself.
    """
    directory, name = os.path.split(file)
    try:
        above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        if os.path.islink(directory):
            raise ConfigError(IS_LINK, file=directory) from None
        raise
    try:
        return os.open(name, FLAGS | os.O_NOFOLLOW, dir_fd=above)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise ConfigError(IS_LINK, file=file) from None
        raise
    finally:
        os.close(above)


def parse(file: str, text: str) -> SourceFile:
    """YAML, or JSON by the file's name."""
    return _parse_json(file, text) if file.endswith(".json") else _parse_yaml(file, text)


def _parse_json(file: str, text: str) -> SourceFile:
    import json

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            raise ConfigError("duplicate key {key!r}", key=next(n for n in names if names.count(n) > 1), file=file)
        return found

    try:
        data = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as problem:
        raise ConfigError(problem.msg, file=file, line=problem.lineno) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", file=file) from None
    except ValueError:
        raise ConfigError(NO_VALUE, file=file) from None
    return SourceFile(file, _mapping(data, file), {})


def _parse_yaml(file: str, text: str) -> SourceFile:
    loader, node = compose(file, text)
    lines: dict[str, int] = {}
    if node is None:
        return SourceFile(file, {}, lines)
    import yaml

    try:
        _walk(node, "", lines, set(), file)
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as problem:
        raise _yaml_error(file, problem) from None
    except (ValueError, LookupError, AttributeError, TypeError):  # `!!bool x`, a 13th month, a number of 5000 digits
        raise ConfigError(NO_VALUE, file=file) from None
    return SourceFile(file, _mapping(data, file), lines)


def compose(file: str, text: str) -> tuple[Any, Any]:
    """The YAML node tree, with positions, and its loader."""
    import yaml

    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # The composer recurses in C and crashes on deep nesting, so a pass over the events checks the depth first.
        depth = 0
        for event in yaml.parse(text, Loader=kind):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                mark: Any = event.start_mark  # some versions of the stubs say None, which no parsed event has
                raise ConfigError("is nested too deeply", file=file, line=mark.line + 1)
        loader = kind(text)
        return loader, loader.get_single_node()
    except yaml.MarkedYAMLError as problem:
        raise _yaml_error(file, problem) from None
    except (yaml.YAMLError, RecursionError) as problem:
        raise ConfigError("is not valid YAML: {problem}", problem=_unquoted(str(problem)), file=file) from None


def _yaml_error(file: str, problem: Any) -> ConfigError:
    mark = problem.problem_mark or problem.context_mark
    return ConfigError(
        "is not valid YAML: {problem}",
        problem=_unquoted(str(problem.problem)),
        file=file,
        line=mark.line + 1 if mark else None,
    )


def _unquoted(text: str) -> str:
    """The parser's message without text quoted from the file, which may be a secret. Single characters stay."""
    import re

    quoted = r"'[^']*'|\"[^\"]*\""
    return re.sub(quoted, lambda match: match[0] if len(match[0]) <= 3 else "…", text.split("\n")[0])


def _walk(node: Any, path: str, lines: dict[str, int], seen: set[int], file: str) -> None:
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise ConfigError("aliases are not supported", path=path, file=file, line=line)
    seen.add(id(node))
    if path:
        lines.setdefault(path, line)
    if node.id == "mapping":
        keys = set()
        for key, value in node.value:
            name = f"{path}.{key.value}" if path else str(key.value)
            if str(key.value) in keys:
                raise ConfigError(
                    "duplicate key {key!r}", key=key.value, path=path, file=file, line=key.start_mark.line + 1
                )
            keys.add(str(key.value))
            lines[name] = key.start_mark.line + 1
            _walk(value, name, lines, seen, file)
    elif node.id == "sequence":
        for at, item in enumerate(node.value):
            _walk(item, f"{path}[{at}]", lines, seen, file)


def _mapping(data: object, file: str) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError("must be a mapping", file=file, line=1)
    return data
