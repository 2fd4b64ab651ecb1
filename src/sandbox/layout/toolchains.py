"""Programs on PATH that are installed under the home directory: what must be visible for them to run, and no more.

`~/.cargo/bin` is needed, `~/.cargo/credentials.toml` is not: where a tool's directory also holds secrets, only the
parts that programs need are listed here. Everything is found from PATH; nothing is searched for.
"""

from __future__ import annotations

import os
import stat

from sandbox.config.paths import is_beneath
from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandbox.plan.plan import Plan

# A directory on PATH that lies beneath the first column makes the second column visible. Relative to the home.
KNOWN = (
    (".pyenv", (".pyenv",)),
    (".rbenv", (".rbenv",)),
    (".nodenv", (".nodenv",)),
    (".asdf", (".asdf",)),
    (".nvm", (".nvm/versions",)),
    (".volta", (".volta/bin", ".volta/tools")),
    (".fnm", (".fnm",)),
    (".cargo", (".cargo/bin", ".cargo/env", ".rustup/toolchains", ".rustup/settings.toml")),
    (".bun", (".bun/bin",)),
    (".deno", (".deno/bin",)),
    (".sdkman", (".sdkman/candidates",)),
    (".local/share/mise", (".local/share/mise/installs", ".local/share/mise/shims", ".local/bin/mise")),
    (".local/share/uv", (".local/share/uv/python", ".local/share/uv/tools")),
    (".local/share/pipx", (".local/share/pipx/venvs",)),
    (".local/share/pnpm", (".local/share/pnpm",)),
    (".nix-profile", (".nix-profile", ".local/state/nix")),
)
# If the parent of a `bin` directory has one of these, it is a complete installation (a venv, conda, Go or Node).
MARKS = ("pyvenv.cfg", "conda-meta", "lib", "libexec", "pkg")

# Where people and installers put links to programs that live elsewhere.
MOST_CONFIG = 2**16  # bytes of a pyvenv.cfg
LINKED = ("/usr/local/bin", "/usr/local/sbin")


def toolchain_roots(path: str, home: str, project: str) -> list[str]:
    """What to make visible, read-only, so that the programs on PATH and the project's own venv run."""
    roots: dict[str, None] = {}
    entries = [one for one in path.split(":") if one.startswith("/")]
    for venv in (".venv", "venv"):
        if os.path.exists(f"{project}/{venv}/pyvenv.cfg"):
            entries.append(f"{project}/{venv}/bin")
    for entry in dict.fromkeys(entries):  # a PATH that several shells added to has many twice
        inside = is_beneath(os.path.realpath(entry), project)
        for root in _pythons_of(entry, home) if inside else _roots_of(entry, home):
            roots[root] = None
    return _outermost(root for root in roots if not is_beneath(root, project) and os.path.exists(root))


def hidden_program(name: str, path: str, plan: Plan) -> str | None:
    """Why tenants do not have a command that the owner has, and how to show it; None if the owner does not have it
    either, or if tenants can see it."""
    import shutil

    found = shutil.which(name, path=path)
    if found is None:
        return None
    seen = [bind.target for bind in plan.binds] + [link for link, _ in plan.links]
    real = os.path.realpath(found)
    hidden = next((one for one in (found, real) if not any(is_beneath(one, place) for place in seen)), None)
    if hidden is None:
        return None
    show = next(_installation(os.path.dirname(hidden), os.path.realpath(os.path.expanduser("~"))))
    return Message(
        "{name}: no such command inside the sandbox: {file} is not visible there (the system, /opt and programs under "
        "your home directory are); to show it, use `--ro {directory}` or filesystem.allow_read",
        name=name,
        file=hidden,
        directory=show,
    )


def _roots_of(entry: str, home: str) -> Iterator[str]:
    """The roots behind one directory on PATH. Follows the links among its programs."""
    if not os.path.isdir(entry):
        return
    if _needs_binding(entry, home):
        yield from _installation(entry, home)
    elif entry not in LINKED:
        return  # the system's own directories: thousands of links, and all stay within the system
    for target in _link_targets(entry):
        if _needs_binding(target, home):
            yield from _behind(target, home)
    config = f"{os.path.dirname(entry)}/pyvenv.cfg"
    if os.path.exists(config):
        base = _base_python(config)
        if base and _needs_binding(base, home):
            yield from _installation(base, home)


def _pythons_of(entry: str, home: str) -> Iterator[str]:
    """The Python installations behind a `bin` directory of the project.

    A tenant writes there, and must not choose what the next run sees. So its links and its `pyvenv.cfg` count only if
    they lead to an interpreter with its library beside it, and they show no more than that.
    """
    if not os.path.isdir(entry):
        return
    places = {os.path.dirname(target) for target in _link_targets(entry)}
    places.add(_base_python(f"{os.path.dirname(entry)}/pyvenv.cfg") or "")
    for place in places:
        if os.path.basename(place) == "bin" and _needs_binding(place, home) and _holds_python(os.path.dirname(place)):
            yield from _installation(place, home)


def _holds_python(installation: str) -> bool:
    try:
        names = os.listdir(f"{installation}/lib")
    except OSError:
        return False
    return any(
        os.path.isfile(f"{installation}/bin/{name}") and os.path.isfile(f"{installation}/lib/{name}/os.py")
        for name in names
        if name.startswith(("python3.", "pypy3."))
    )


def installation_of(program: str, home: str) -> Iterator[str]:
    """What must be visible for this one program: where it is found, and where it really is."""
    for file in dict.fromkeys((os.path.abspath(program), os.path.realpath(program))):
        yield from _behind(file, home)
        base = _base_python(f"{os.path.dirname(os.path.dirname(file))}/pyvenv.cfg")
        if base and _holds_python(os.path.dirname(base)):
            yield os.path.dirname(base)


def _behind(file: str, home: str) -> Iterator[str]:
    """The roots behind one program. If a root would be the home directory, or one above it, only the file is shown: the
    rest is private."""
    for root in _installation(os.path.dirname(file), home):
        yield file if is_beneath(home, root) else root


def _node_modules(directory: str) -> str | None:
    """The outermost `node_modules` that holds `directory`: packages in it need their siblings."""
    before, found, _ = f"{directory}/".partition("/node_modules/")
    return f"{before}/node_modules" if found else None


def _installation(directory: str, home: str) -> Iterator[str]:
    packages = _node_modules(directory)
    if packages is not None:
        yield packages
        return
    for prefix, parts in KNOWN:
        if is_beneath(directory, f"{home}/{prefix}"):
            yield from (f"{home}/{part}" for part in parts)
            return
    parent = os.path.dirname(directory)
    whole = os.path.basename(directory) in ("bin", "sbin", "shims", "Scripts") and any(
        os.path.exists(f"{parent}/{mark}") for mark in MARKS
    )
    # Next to `~/.local/bin` there are `lib` and much private state: never show its parent.
    if whole and parent not in (home, f"{home}/.local"):
        yield parent
    else:
        yield directory


def _link_targets(directory: str) -> Iterator[str]:
    """The targets of links in a directory of programs, if they are outside the directory."""
    try:
        with os.scandir(directory) as entries:
            links = [entry.path for entry in entries if entry.is_symlink() and "/" in os.readlink(entry.path)]
    except OSError:
        return
    for link in links:
        target = os.path.realpath(link)
        if not is_beneath(target, directory):
            yield target


def _base_python(config: str) -> str | None:
    """The directory of the interpreter that a venv was made from."""
    try:
        # A tenant may have put a FIFO or a link to a device there: neither may hold up a start.
        fd = os.open(config, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        said = os.read(fd, MOST_CONFIG) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    for line in said.decode(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home" and "\0" not in value:
            return os.path.realpath(value.strip())
    return None


def _needs_binding(path: str, home: str) -> bool:
    """Whether it is under the home directory or /opt. The system's own programs are visible anyway."""
    return (is_beneath(path, home) and path != home) or is_beneath(path, "/opt")


def _outermost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(paths):
        if not kept or not is_beneath(path, kept[-1]):
            kept.append(path)
    return kept
