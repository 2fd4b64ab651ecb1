"""Layers: built-in < user < the file named by --config < profile < project < flags. A later one wins; lists replace.

The agent can write the project's files, so these can only tighten (`tighten.py`). What they tried to loosen is ignored
and listed in `warnings`.
"""

from __future__ import annotations

import os

from sandbox.config.home import user_config_file
from sandbox.config.model import Config, Limits
from sandbox.config.modes import default_limit, without_walls
from sandbox.config.paths import absolute
from sandbox.config.section import Section
from sandbox.errors import ConfigError, Message, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from sandbox.config.files import SourceFile
    from sandbox.config.section import Field

BUILT_IN, USER, FILE, PROFILE, PROJECT, FLAGS = "built-in", "user", "file", "profile", "project", "flags"


class ValueOrigin:
    """Where a value came from."""

    __slots__ = ("layer", "file", "line")

    def __init__(self, layer: str, file: str | None = None, line: int | None = None) -> None:
        self.layer = layer
        self.file = file
        self.line = line

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return f"{self.layer} ({where})" if where else self.layer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueOrigin) and str(self) == str(other)

    def __repr__(self) -> str:
        return f"Origin({self})"


class Widening:
    """A setting of a project's file that would have loosened the sandbox and was ignored."""

    __slots__ = ("path", "origin", "reason")

    def __init__(self, path: str, origin: ValueOrigin, reason: str) -> None:
        self.path = path
        self.origin = origin
        self.reason = reason

    @property
    def message(self) -> Message:
        """What to tell the user."""
        return Message(
            "{place}: {path}: ignored, because a project file may only tighten: {reason}",
            place=":".join(str(part) for part in (self.origin.file, self.origin.line) if part is not None),
            path=self.path,
            reason=self.reason,
        )

    def __str__(self) -> str:
        return str(self.message)

    def __repr__(self) -> str:
        return f"Widening({self})"


class ProfileLayer:
    """What a profile asks for: `data` as in a config file, and the hosts that its program cannot do without."""

    __slots__ = ("name", "file", "data", "hosts", "without")

    def __init__(
        self, name: str, file: str | None, data: dict[str, Any], hosts: list[str], without: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.file = file
        self.data = data
        self.hosts = hosts
        self.without = without  # hosts that it asks for and can do without

    @property
    def origin(self) -> ValueOrigin:
        return ValueOrigin(PROFILE, self.name)


class Resolved:
    """The effective config, the origin of every value that is not built in, and what was ignored.

    `users` is the config without the project's files; `asked` says where those files set something.
    """

    __slots__ = ("config", "sources", "warnings", "users", "asked", "profile", "profile_hosts", "expected")

    def __init__(self, config: Config, sources: dict[str, ValueOrigin], warnings: list[Widening]) -> None:
        self.config = config
        self.sources = sources
        self.warnings = warnings
        self.users = config
        self.asked: dict[str, ValueOrigin] = {}
        self.profile: str | None = None
        self.profile_hosts: list[str] = []  # what the profile added to `network.allowed_hosts`
        self.expected: Sequence[str] = ()  # hosts whose refusal needs no report, according to the profile

    def origin(self, path: str) -> ValueOrigin:
        """The layer that decided `path` ("network.allowed_hosts")."""
        return self.sources.get(path) or ValueOrigin(BUILT_IN)


def resolve(
    flags: Mapping[str, Any], *, project: str, config_file: str | None = None, profile: ProfileLayer | None = None
) -> Resolved:
    """The effective config for `project`. Raises ConfigError (file, line, path). Never applies half of a file."""
    try:
        project = os.path.abspath(project)
    except FileNotFoundError:
        raise SandboxError("the current directory no longer exists") from None
    resolved = Resolved(Config(), {}, [])
    named: Config | None = None
    user = user_config_file()
    if os.path.exists(user):
        _apply_file(resolved, USER, user)
    if config_file is not None:
        if not os.path.exists(config_file):
            raise ConfigError("no such file", file=config_file)
        named = _apply_file(resolved, FILE, config_file)
    if profile is not None:
        _apply_profile(resolved, profile)
    for file in project_files(project):
        _apply_project(resolved, file, project)
    said = Config.read(dict(flags)) if flags else None
    for config in {id(one): one for one in (resolved.config, resolved.users)}.values():
        if said is not None:
            _apply(resolved, FLAGS, None, said, flags, into=config)
        if profile is not None:
            _add_hosts(resolved, config, profile)
        config.filesystem.root = absolute(config.filesystem.root, project)
        if named is not None and config_file is not None:
            from sandbox.config.named_file import keep_from_tenants

            keep_from_tenants(config, config_file, named)
    if resolved.asked:
        _hold_project(resolved)
    return resolved


def users_config() -> Config:
    """What the user's own file says, and nobody else's. Raises ConfigError."""
    resolved = Resolved(Config(), {}, [])
    user = user_config_file()
    if os.path.exists(user):
        _apply_file(resolved, USER, user)
    return resolved.config


def project_files(project: str) -> list[str]:
    """The project's config files that exist. In the home directory, the user's file does not count as the project's."""
    user = os.path.realpath(user_config_file())
    names = (os.path.join(project, ".uds", "config.yaml"), os.path.join(project, ".sandbox", "config.yaml"))
    return [name for name in names if os.path.lexists(name) and os.path.realpath(name) != user]


def read_source(file: str, *, links: bool = True) -> tuple[SourceFile, dict[str, Any], Config]:
    """A config file, its settings in our spelling, and those settings checked. Raises ConfigError with the line."""
    from sandbox.config import dialects, files

    source = files.read(file, links=links)
    if source is None:
        raise ConfigError("no such file", file=file)
    try:
        translated = dialects.translate(source)
        return source, translated, Config.read(translated)
    except ConfigError as problem:
        path, at = (dialects.spelled(source, one) for one in (problem.path, problem.at))
        raise source.error(problem, path, at) from None


def present(section: Section, data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Field, Any]]:
    """The settings that `data` names, one by one, with their checked values from `section`."""
    for key, value in data.items():
        one = section.fields[key]
        checked = getattr(section, one.name)
        if isinstance(checked, Section) and isinstance(value, dict):
            yield from present(checked, value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", one, checked


def _apply_file(resolved: Resolved, layer: str, file: str) -> Config:
    """Applies a file, and returns what it says by itself."""
    source, data, checked = read_source(file)
    _apply(resolved, layer, source, checked, data)
    return checked


def _apply_profile(resolved: Resolved, profile: ProfileLayer) -> None:
    """Applies a profile: it extends lists, and sets values and entries that the user's own files leave unset.

    It replaces the settings of `state`, because two programs must not share what is kept of the home.
    """
    checked = Config.read(profile.data)
    for path, one, value in present(checked, profile.data):
        section = _section(resolved.config, path)
        current = getattr(section, one.name)
        if isinstance(value, dict):
            taken: Any = {**value, **current}
        elif isinstance(value, list) and not path.startswith("state."):
            taken = [*current, *(item for item in value if item not in current)]
        elif path in resolved.sources and not path.startswith("state."):
            continue
        else:
            taken = value
        if taken != current:
            setattr(section, one.name, taken)
            resolved.sources[path] = profile.origin


def _add_hosts(resolved: Resolved, config: Config, profile: ProfileLayer) -> None:
    """Adds the profile's hosts after all layers: a list of hosts in the project or on the command line limits what the
    program does, and must not keep it from running at all. `denied_hosts` still wins, whichever layer sets it."""
    network = config.network
    network.allowed_hosts = [
        *network.allowed_hosts,
        *(one for one in profile.hosts if one not in network.allowed_hosts),
    ]
    resolved.profile_hosts = profile.hosts
    resolved.profile = profile.name
    resolved.expected = profile.without


def _apply_project(resolved: Resolved, file: str, project: str) -> None:
    from sandbox.config.tighten import tightened

    source, data, checked = read_source(file, links=False)
    before = resolved.config  # rules also look at other settings: those of the lower layers, not the project's own

    def only_tighter(path: str, current: Any, wanted: Any) -> Any:
        value, widened = tightened(path, current, wanted, before, project)
        if widened:
            resolved.warnings.append(Widening(path, _origin(PROJECT, source, path), widened))
        return value

    resolved.config = before.copy()
    _apply(resolved, PROJECT, source, checked, data, only_tighter)


def _hold_project(resolved: Resolved) -> None:
    """Checks what can be checked only when all layers are known: whether there is isolation, and which mode's defaults
    would apply without the project's settings.
    """
    users = resolved.users
    for name in Limits.fields:
        before, now = getattr(users.limits, name), getattr(resolved.config.limits, name)
        most = default_limit(users.mode, name) if before is None else before
        if now != before and most is not None and now > most:
            _take_back(resolved, f"limits.{name}", Message("the limit is already {limit}", limit=most))
    if without_walls(resolved.config):
        leave_to_the_user(resolved)


# What decides which program runs on the host, and how. Without isolation, a project may set none of it.
ON_THE_HOST = ("environment.set", "filesystem.root")


def leave_to_the_user(resolved: Resolved) -> None:
    """Without isolation, a project sets no variable and chooses no directory: either can make some program run the
    project's code. For callers that disable isolation after the layers were read.
    """
    for path in ON_THE_HOST:
        _take_back(resolved, path, Message("without walls it would act on the host"))


def _take_back(resolved: Resolved, path: str, reason: str) -> None:
    """Restores the user's value of a setting that the project changed, and adds a warning."""
    name = path.rpartition(".")[2]
    section, users = _section(resolved.config, path), _section(resolved.users, path)
    if getattr(section, name) == getattr(users, name):
        return
    setattr(section, name, getattr(users, name))
    origin = resolved.asked[path]
    if resolved.origin(path) == origin:
        resolved.sources.pop(path)
    resolved.warnings.append(Widening(path, origin, reason))


def _apply(
    resolved: Resolved,
    layer: str,
    source: SourceFile | None,
    checked: Config,
    data: Mapping[str, Any],
    restrict: Callable[[str, Any, Any], Any] | None = None,
    into: Config | None = None,
) -> None:
    for path, one, value in present(checked, data):
        if restrict:
            resolved.asked[path] = _origin(layer, source, path)
        section = _section(into or resolved.config, path)
        current = getattr(section, one.name)
        wanted = {**current, **value} if isinstance(current, dict) and isinstance(value, dict) else value
        taken = restrict(path, current, wanted) if restrict else wanted
        if restrict and taken == current:
            continue
        setattr(section, one.name, taken)
        resolved.sources[path] = _origin(layer, source, path)


def _section(config: Config, path: str) -> Section:
    section: Section = config
    for name in path.split(".")[:-1]:
        section = getattr(section, section.fields[name].name)
    return section


def _origin(layer: str, source: SourceFile | None, path: str) -> ValueOrigin:
    if source is None:
        return ValueOrigin(layer)
    from sandbox.config import dialects

    return ValueOrigin(layer, source.file, source.line(dialects.spelled(source, path)))
