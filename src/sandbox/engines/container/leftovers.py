"""Which containers are ours: listed by label and, when asked, name prefix, and removed when their owner is gone."""

from __future__ import annotations

import os
import shutil

from sandbox.config.home import home
from sandbox.engines.container.cli import APPLE, Cli, CommandFailed, find, printable
from sandbox.errors import EngineUnavailable
from sandbox.registry.process_identity import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ID, OWNER, HOME = "sandbox.id", "sandbox.owner", "sandbox.home"
ENGINES = ("docker", "podman", APPLE)
SHELVES = "containers"  # the directory in the sandbox home with the containers' own directories: guest_directory.py


class Listed:
    """A container that we started."""

    __slots__ = ("engine", "name", "id", "owner", "home", "state")

    def __init__(self, engine: str, name: str, labels: dict[str, str], state: str) -> None:
        self.engine = engine
        self.name = name
        self.state = state
        self.id = labels.get(ID, "")  # of its sandbox
        self.owner = labels.get(OWNER, "")  # the process that made it: pid and start time
        self.home = labels.get(HOME, "")  # the sandbox home whose registry lists it

    def __repr__(self) -> str:
        return f"Listed({self.engine}, {self.name!r}, {self.state!r})"

    @property
    def owner_lives(self) -> bool:
        pid, _, began = self.owner.partition(" ")
        return not pid.isdecimal() or identity(int(pid)) == began


def labels(id: str) -> dict[str, str]:
    """The labels of a container."""
    return {ID: id, OWNER: f"{os.getpid()} {identity(os.getpid())}", HOME: os.path.realpath(home())}


def listed(cli: Cli, prefix: str = "") -> list[Listed]:
    """Our containers whose names begin with `prefix`, running or not. Raises CommandFailed, EngineUnavailable."""
    if cli.name == APPLE:
        return [one for one in _of_apple(cli) if one.id and one.name.startswith(prefix)]
    ours = cli.run("ps", "--all", "--no-trunc", "--filter", f"label={ID}", "--format", "{{.ID}}").split()
    if not ours:
        return []
    try:
        told = cli.json("container", "inspect", *ours)
    except CommandFailed:  # one of them has just gone
        told = [one for id in ours for one in _inspected(cli, id)]
    found = (_read(cli.name, one) for one in told or ())
    return [one for one in found if one.name.startswith(prefix)]


def _of_apple(cli: Cli) -> list[Listed]:
    told = cli.json("list", "--all", "--format", "json")
    found = []
    for one in told if isinstance(told, list) else ():
        configuration, status = one.get("configuration") or {}, one.get("status")
        marks = {str(key): printable(str(value)) for key, value in (configuration.get("labels") or {}).items()}
        state = status.get("state", "") if isinstance(status, dict) else status  # a word, in earlier versions
        found.append(Listed(cli.name, printable(str(configuration.get("id", ""))), marks, printable(str(state))))
    return found


def _inspected(cli: Cli, id: str) -> list[Any]:
    try:
        return cli.json("container", "inspect", id) or []
    except CommandFailed:
        return []


def _read(engine: str, told: dict[str, Any]) -> Listed:
    marks = (told.get("Config") or {}).get("Labels") or {}
    name = printable(str(told.get("Name", "")).lstrip("/"))
    state = printable(str((told.get("State") or {}).get("Status", "")))
    return Listed(engine, name, {str(key): printable(str(value)) for key, value in marks.items()}, state)


def remove_container(cli: Cli, one: Listed) -> None:
    """Kills and removes one of our containers: its label says that it is. Raises CommandFailed, EngineUnavailable."""
    if not one.id or not one.name:
        raise CommandFailed(cli.name, one.name)
    cli.run("rm", "--force", one.name)


def sweep() -> list[str]:
    """Removes this registry's containers whose owners are gone, and the shelves they left. Returns their names. Never
    raises: an engine that does not answer is skipped."""
    removed: list[str] = []
    if not os.path.isdir(os.path.join(home(), SHELVES)):  # none was ever started from here
        return removed
    for engine in ENGINES:
        if find(engine) is None:
            continue
        try:
            cli = Cli(engine)
            for one in listed(cli):
                if one.home == os.path.realpath(home()) and not one.owner_lives:
                    remove_container(cli, one)
                    removed.append(one.name)
        except (CommandFailed, EngineUnavailable):
            continue
    _sweep_shelves()
    return removed


def _sweep_shelves() -> None:
    """A shelf exists only while its container starts, and the owner is in the registry by then."""
    shelves = os.path.join(home(), SHELVES)
    for name in os.listdir(shelves):
        if not os.path.isdir(os.path.join(home(), "vms", name)):
            shutil.rmtree(os.path.join(shelves, name), ignore_errors=True)
