"""The names of all hooks. A hook with another name would never be called and guard nothing, so it is an error."""

from __future__ import annotations

from sandbox.errors import ConfigError

HTTP = ("on_request", "on_response", "on_tls_verify")
ASK = "on_ask"
OPERATIONS = (
    "stat", "readdir", "open", "create", "read", "write", "sync", "close", "mkdir", "mknod", "remove", "rename",
    "symlink", "readlink", "link", "setattr", "getxattr", "setxattr", "listxattr", "removexattr",
)  # fmt: skip
HOOKS = (*HTTP, ASK, *(f"{when}_{operation}" for operation in OPERATIONS for when in ("before", "after")))
_PREFIXES = ("on_", "before_", "after_")
_SQUEEZED = {name.replace("_", ""): name for name in HOOKS}


def unknown_hook(name: str) -> ConfigError:
    """The error for a hook that does not exist, with the nearest one that does."""
    import difflib

    near = difflib.get_close_matches(name.lower(), HOOKS, n=1, cutoff=0.6)
    if near:
        return ConfigError("unknown hook {name!r}; did you mean {near!r}?", name=name, near=near[0], path="hooks")
    return ConfigError("unknown hook {name!r}; docs/hooks.md and docs/vfs.md list them", name=name, path="hooks")


def names_of(hooks: object) -> list[str]:
    """The hooks that an object has.

    Raises ConfigError for a method whose name only resembles a hook's (`before_opn`, `onRequest`), and for a dict or
    any other object that has no hook.
    """
    if isinstance(hooks, dict | list | tuple | set | str | bytes):
        raise ConfigError(
            "must be an object with hooks as methods, not a {type}", type=type(hooks).__name__, path="hooks"
        )
    members = [name for name in dir(hooks) if not name.startswith("_")]
    for name in members:
        looks_like_one = name.startswith(_PREFIXES) or name.replace("_", "").lower() in _SQUEEZED
        if looks_like_one and name not in HOOKS and getattr(hooks, name) is not None:
            raise unknown_hook(name)
    found = [name for name in members if name in HOOKS and getattr(hooks, name) is not None]
    for name in found:
        if not callable(getattr(hooks, name)):
            raise ConfigError("{name} must be a function", name=name, path="hooks")
    if not found and getattr(hooks, "client_gate", None) is None:
        raise ConfigError(
            "{type} has no hook; docs/hooks.md and docs/vfs.md list them", type=type(hooks).__name__, path="hooks"
        )
    return found
