"""A section of the configuration: named, typed, documented fields, checked when they are read.

Why not msgspec or dataclasses: every `sandbox run` imports this, and importing either takes longer than building the
sandbox. Also, errors name the exact path of a mistake and suggest a fix, which is most of a validator.

A field's annotation must be one of: str, int, float, bool, `X | None`, list[X], dict[str, X], or another Section.
(Modules that define sections therefore do not postpone annotations.)
"""

from sandbox.errors import ConfigError, Message, message_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import GenericAlias, UnionType
    from typing import Any, Self


# As in `types`, which takes half a millisecond to import.
if not TYPE_CHECKING:
    UnionType, GenericAlias = type(int | str), type(list[int])


class Field:
    """One documented setting."""

    __slots__ = ("name", "key", "type", "default", "doc", "choices", "parse", "example", "secret", "shown")

    def __init__(self, default, doc, choices, parse, key, example, secret, shown) -> None:  # type: ignore[no-untyped-def]
        self.name = ""
        self.type: Any = None
        self.default = default
        self.doc: str = doc
        self.choices: tuple[str, ...] | None = choices
        self.parse: Callable[[Any], Any] | str | None = parse
        self.key: str = key
        self.example: Any = example
        self.secret: bool = secret
        self.shown: Callable[[Any], Any] | None = shown

    def parsed(self, value: "Any") -> "Any":
        """The value that the user's spelling stands for. Raises ValueError, TypeError or ConfigError."""
        if not isinstance(self.parse, str):
            return self.parse(value) if self.parse is not None else value
        from importlib import import_module

        module, _, name = self.parse.partition(".")
        return getattr(import_module(f"sandbox.config.{module}"), name)(value)

    def fresh_default(self) -> "Any":
        """The default, never shared between two sections."""
        if isinstance(self.default, type):
            return self.default()
        return self.default.copy() if isinstance(self.default, list | dict) else self.default


def field(
    default: object,
    doc: str,
    *,
    choices: "tuple[str, ...] | None" = None,
    parse: "Callable[[Any], Any] | str | None" = None,
    key: str = "",
    example: object = None,
    secret: bool = False,
    shown: "Callable[[Any], Any] | None" = None,
) -> "Any":
    """Declares a field.

    `parse` converts what the user wrote ("512m") to the value. It is a function, or the name of one in this package
    ("units.size"), which is then imported on first use. `key` is the field's name in files. A `secret` value is never
    shown; `shown` converts any other value for display.
    """
    return Field(default, doc, choices, parse, key, example, secret, shown)


REDACTED = "[redacted]"


class Section:
    """Base of every section: keyword arguments in, plain attributes out, equal by value."""

    fields: "dict[str, Field]" = {}

    def __init_subclass__(cls) -> None:
        declared = dict(cls.fields)
        for name, kind in cls.__annotations__.items():
            one = cls.__dict__.get(name)
            if isinstance(one, Field):
                one.name, one.type, one.key = name, kind, one.key or name
                declared[one.key] = one
                delattr(cls, name)
        cls.fields = declared

    def __init__(self, **values: object) -> None:
        for one in self.fields.values():
            setattr(self, one.name, values.pop(one.name) if one.name in values else one.fresh_default())
        if values:
            raise TypeError(f"{type(self).__name__} has no field {next(iter(values))!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        changed = [
            f"{one.name}={REDACTED if one.secret else repr(_visible(one, getattr(self, one.name)))}"
            for one in self.fields.values()
            if getattr(self, one.name) != one.fresh_default()
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def read(cls, data: "Mapping[str, object]", path: str = "") -> "Self":
        """Builds the section from a file's or caller's data. Raises ConfigError with the path of the mistake."""
        if not isinstance(data, dict):
            raise ConfigError("must be a mapping, not {kind}", kind=_named(data), path=path)
        values = {}
        for key, value in data.items():
            one = cls.fields.get(key)
            if one is None:
                raise unknown_key(str(key), cls.fields, path)
            values[one.name] = _checked(one, value, _join(path, key))
        return cls(**values)

    def copy(self) -> "Self":
        """A deep copy: changes to one do not affect the other."""
        return owned(self)  # type: ignore[no-any-return]

    def changed(self, changes: "Mapping[str, object]", path: str = "") -> "Self":
        """A copy with `changes` applied: mappings are merged (None removes an entry), everything else is replaced.

        Raises ConfigError with the path of the mistake.
        """
        copy = type(self).read(_said(changes), path)
        for one in self.fields.values():
            mine, new = getattr(self, one.name), changes.get(one.key)
            if new is None:
                setattr(copy, one.name, mine)
            elif isinstance(mine, Section) and isinstance(new, dict):
                setattr(copy, one.name, mine.changed(new, _join(path, one.key)))
            elif isinstance(mine, dict) and isinstance(new, dict):
                kept = {key: value for key, value in mine.items() if key not in new}
                setattr(copy, one.name, {**kept, **getattr(copy, one.name)})
        return copy

    def whole(self) -> "dict[str, Any]":
        """The section as plain data, in file spelling, including secrets: to be passed on, never shown."""
        return {one.key: _whole(getattr(self, one.name)) for one in self.fields.values()}

    def plain(self) -> "dict[str, Any]":
        """The section as plain data, in file spelling, without secrets: may be shown and stored."""
        return {
            one.key: _redacted(getattr(self, one.name))
            if one.secret
            else _plain(_visible(one, getattr(self, one.name)))
            for one in self.fields.values()
        }


def _visible(one: Field, value: object) -> object:
    return value if one.shown is None else one.shown(value)


def owned(value: "Any") -> "Any":
    """`value` with every section, mapping and list in it copied. Other objects (a provider) are shared."""
    if isinstance(value, Section):
        copy = object.__new__(type(value))
        for name, inner in value.__dict__.items():
            setattr(copy, name, owned(inner))
        return copy
    if isinstance(value, dict):
        return {key: owned(item) for key, item in value.items()}
    return [owned(item) for item in value] if isinstance(value, list | tuple) else value


def _said(changes: "Mapping[str, object]") -> "dict[str, object]":
    return {
        key: _said(value) if isinstance(value, dict) else value for key, value in changes.items() if value is not None
    }


def unknown_key(key: str, known: "Mapping[str, object]", path: str) -> ConfigError:
    """The error for an unknown key, with the nearest known one."""
    import difflib

    near = difflib.get_close_matches(key.replace("-", "_"), list(known), n=1, cutoff=0.6)
    if near:
        problem = ConfigError("unknown key {key!r}; did you mean {near!r}?", key=key, near=near[0], path=path)
    else:
        problem = ConfigError(
            "unknown key {key!r}; known keys: {keys}", key=key, keys=", ".join(sorted(known)), path=path
        )
    problem.at = _join(path, key)
    return problem


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _checked(one: Field, value: object, path: str) -> "Any":
    if one.parse is not None and value is not None:
        try:
            return one.parsed(value)
        except ConfigError as problem:
            raise ConfigError(problem.problem, path=path) from None
        except (ValueError, TypeError) as problem:
            raise ConfigError(message_of(problem), path=path) from None
    if value is False and one.choices is not None and "off" in one.choices:
        value = "off"  # a bare `off`, as YAML 1.1 reads it
    value = _fitting(one.type, value, path)
    if one.choices is not None and value is not None and value not in one.choices:
        import difflib

        near = difflib.get_close_matches(str(value), one.choices, n=1)
        choices = ", ".join(one.choices)
        if near:
            raise ConfigError(
                "must be one of {choices}, not {value!r}; did you mean {near!r}?",
                choices=choices,
                value=value,
                near=near[0],
                path=path,
            )
        raise ConfigError("must be one of {choices}, not {value!r}", choices=choices, value=value, path=path)
    return value


def _fitting(kind: "Any", value: object, path: str) -> "Any":
    """`value` as the annotation `kind` wants it, or a ConfigError."""
    if isinstance(kind, UnionType):
        if value is None:
            return None
        inner = next(one for one in kind.__args__ if one is not type(None))
        return _fitting(inner, value, path)
    if isinstance(kind, GenericAlias):
        if kind.__origin__ is list:
            if not isinstance(value, list | tuple):
                if isinstance(value, str):
                    raise ConfigError("must be a list: write [ ] around a single entry", path=path)
                raise ConfigError("must be a list, not {kind}", kind=_named(value), path=path)
            return [_fitting(kind.__args__[0], item, f"{path}[{at}]") for at, item in enumerate(value)]
        if not isinstance(value, dict):
            raise ConfigError("must be a mapping, not {kind}", kind=_named(value), path=path)
        for key in value:
            if not isinstance(key, str):
                raise ConfigError("keys must be strings: write them in quotes", path=path)
            if "\0" in key:
                raise ConfigError(NUL, path=path)
        return {key: _fitting(kind.__args__[1], item, _join(path, key)) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Section):
        return value.copy() if isinstance(value, kind) else kind.read(value, path)  # type: ignore[arg-type]
    if kind is object:
        return owned(value)  # checked where it is used
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
            raise ConfigError("must be a string: write it in quotes", path=path)
        raise ConfigError("must be {wanted}, not {kind}", wanted=_KINDS[kind], kind=_named(value), path=path)
    if kind is str and "\0" in value:  # type: ignore[operator]
        raise ConfigError(NUL, path=path)
    return value


NUL = Message("contains a NUL character")

_KINDS = {
    str: Message("a string"),
    int: Message("a whole number"),
    float: Message("a number"),
    bool: Message("true or false"),
}


def _named(value: object) -> str:
    if value is None:
        return Message("empty")
    if isinstance(value, dict):
        return Message("a mapping")
    if isinstance(value, list | tuple):
        return Message("a list")
    return _KINDS.get(type(value), type(value).__name__)  # never the value: it may be a secret in the wrong place


def _plain(value: object) -> object:
    if isinstance(value, Section):
        return value.plain()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _whole(value: object) -> object:
    if isinstance(value, Section):
        return value.whole()
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {key: _whole(item) for key, item in value.items()} if isinstance(value, dict) else value


def _redacted(value: object) -> object:
    if isinstance(value, dict):
        return dict.fromkeys(value, REDACTED)
    return REDACTED if value else value
