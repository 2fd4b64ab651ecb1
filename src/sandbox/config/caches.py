"""Where package managers keep what they downloaded: the one table, and how to read it.

Only what a tool downloads, and can verify or download again, is a cache here. Files beside it (`~/.npmrc`,
`~/.cargo/credentials.toml`, `~/.m2/settings.xml`, npm's `_logs`) are not listed, so they are not shown. `hidden` lists
parts that hold git repositories: these store the URLs they were fetched from, tokens included.
"""

from __future__ import annotations

import os

from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Cache:
    """One directory of one tool. `own`: it is built from the user's other projects, so tenants get an empty one."""

    __slots__ = ("tool", "part", "variables", "place", "hidden", "own", "tells")

    def __init__(
        self,
        tool: str,
        place: str,
        variables: Mapping[str, str],
        *,
        part: str = "",
        hidden: tuple[str, ...] = (),
        own: bool = False,
        tells: Mapping[str, str] | None = None,
    ) -> None:
        self.tool = tool
        self.part = part or tool  # its name among the kept layers
        self.place = place  # `cache:` is $XDG_CACHE_HOME, `data:` $XDG_DATA_HOME, otherwise relative to the home
        self.variables = variables  # a variable that moves it -> its place below that variable's value
        self.hidden = hidden
        self.own = own
        self.tells = tells or {}  # variables to set inside, so that the tool uses this directory; {} is its path


TABLE = (
    Cache("pip", "cache:pip", {"PIP_CACHE_DIR": ""}),
    # Hard links do not cross from the cache to the project: without the variable, uv complains each time.
    Cache("uv", "cache:uv", {"UV_CACHE_DIR": ""}, hidden=("git-v0",), tells={"UV_LINK_MODE": "copy"}),
    Cache("npm", ".npm/_cacache", {"npm_config_cache": "_cacache", "NPM_CONFIG_CACHE": "_cacache"}),
    # pnpm looks for a file system that it can link from, and would make a store in the project.
    Cache(
        "pnpm",
        "data:pnpm/store",
        {"npm_config_store_dir": "", "pnpm_config_store_dir": "", "PNPM_HOME": "store"},
        tells={"pnpm_config_store_dir": "{}", "npm_config_store_dir": "{}"},
    ),
    Cache("pnpm", "cache:pnpm", {"npm_config_cache_dir": "", "pnpm_config_cache_dir": ""}, part="pnpm-metadata"),
    Cache("cargo", ".cargo/registry", {"CARGO_HOME": "registry"}),
    Cache("go", "go/pkg/mod", {"GOMODCACHE": "", "GOPATH": "pkg/mod"}, hidden=("cache/vcs",)),
    Cache("go", "cache:go-build", {"GOCACHE": ""}, part="go-build", own=True),
    Cache("maven", ".m2/repository", {}),
)
TOOLS = list(dict.fromkeys(one.tool for one in TABLE))


def checked(names: list[str]) -> list[str]:
    """The tools that a configuration names. Raises ConfigError for one that is not in the table."""
    for name in names:
        if name not in TOOLS:
            raise ConfigError("no cache is known for {name!r}; known: {tools}", name=name, tools=", ".join(TOOLS))
    return names


def located(names: Sequence[str], environment: Mapping[str, str], home: str) -> list[tuple[Cache, str]]:
    """The caches of these tools that exist, each with its real path."""
    found = ((one, _real(_path(one, environment, home))) for one in TABLE if one.tool in names)
    return [(one, path) for one, path in found if path is not None]


def _real(path: str) -> str | None:
    """The real path of a directory; None when there is none. Every run asks for all of them, so the kernel is asked
    once for each where it can say it, and not for every part of the path."""
    if not hasattr(os, "O_PATH"):
        return os.path.realpath(path) if os.path.isdir(path) else None
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # no /proc
        return os.path.realpath(path)
    finally:
        os.close(fd)


def _path(one: Cache, environment: Mapping[str, str], home: str) -> str:
    for variable, below in one.variables.items():
        value = environment.get(variable, "").partition(":")[0]  # GOPATH may be several
        if value.startswith("/"):
            return f"{value}/{below}" if below else value
    base, colon, rest = one.place.partition(":")
    if not colon:
        return f"{home}/{one.place}"
    variable, usual = ("XDG_CACHE_HOME", ".cache") if base == "cache" else ("XDG_DATA_HOME", ".local/share")
    value = environment.get(variable, "")
    return f"{value if value.startswith('/') else f'{home}/{usual}'}/{rest}"
