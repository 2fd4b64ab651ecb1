"""What a restored sandbox starts from, and saving that from a running sandbox."""

from __future__ import annotations

import os

from sandbox.checkpoints.trees import Trees, directory_inside, own_directory
from sandbox.config.home import home
from sandbox.errors import ConfigError, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sandbox.config.model import Config
    from sandbox.plan.plan import Plan

MACHINE, LAYER, PLACES = "machine", "layer", "places"
MOST = 16 << 30  # bytes of files in one checkpoint


def workspace_of(id: str) -> dict[str, Any]:
    """The project layer of a running sandbox: its directory, and what is needed to detect conflicts."""
    import json

    directory = os.path.join(home(), "vms", id, "overlay")
    with open(os.path.join(directory, "overlay.json"), encoding="utf-8") as file:
        kept = json.load(file)
    return {"directory": directory, "started_ns": kept["started_ns"], "known": kept.get("known", {})}


def save_files(directory: str, pid: int, places: Sequence[str], layer: Mapping[str, Any] | None) -> None:
    """Copies a paused sandbox's files into `directory`: its own directories, and the project's layer.

    `pid` is a process inside, `layer` the result of `workspace_of`. Raises SandboxError.
    """
    trees = Trees(MOST)
    try:
        upper = os.path.join(layer["directory"], "upper") if layer is not None else ""
        if os.path.isdir(upper):
            os.makedirs(os.path.join(directory, LAYER))
            with own_directory(upper) as source, own_directory(os.path.join(directory, LAYER)) as target:
                trees.copy(source, target)
        for number, place in enumerate(places):
            copy = os.path.join(directory, PLACES, str(number))
            os.makedirs(copy)
            with directory_inside(pid, place) as source, own_directory(copy) as target:
                trees.copy(source, target)
    except OSError as problem:
        raise SandboxError("the sandbox's files cannot be copied: {problem}", problem=problem) from problem


class CheckpointOrigin:
    """A checkpoint that a sandbox is started from."""

    def __init__(self, directory: str, about: Mapping[str, Any]) -> None:
        """`about`: the content of its manifest."""
        self._directory = directory
        self._places: list[str] = about["places"]
        self._root = tuple(about["project"])
        self.workspace: Mapping[str, Any] = about.get("workspace") or {}
        self.family: str = about.get("family") or about["sandbox"]  # sandboxes that share signing counts

    def check_project(self, config: Config) -> None:
        """Raises SandboxError when the project is not the same directory any more."""
        root = os.path.realpath(os.path.expanduser(config.filesystem.root))
        try:
            status = os.stat(root)
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._root:
            raise SandboxError("{root} is not the directory that the checkpoint was made in", root=root)

    def furnish(self, plan: Plan) -> None:
        """Makes the engine start from this checkpoint, with a hostname of its own."""
        machine = os.path.join(self._directory, MACHINE)
        plan.saved = machine if os.path.isdir(machine) else None
        plan.fill = self._fill
        old, plan.hostname = plan.hostname, f"{plan.hostname}-{plan.id.removeprefix('vm-')}"
        named = {"/etc/hostname", "/etc/hosts"}
        plan.files = [
            (path, mode, content.replace(old.encode(), plan.hostname.encode()) if path in named else content)
            for path, mode, content in plan.files
        ]

    def lay(self, layer: str) -> None:
        """Copies the saved changes to the project into a new layer. Raises OSError."""
        saved = os.path.join(self._directory, LAYER)
        upper = os.path.join(layer, "upper")
        os.makedirs(upper, 0o755, exist_ok=True)
        if os.path.isdir(saved):
            with own_directory(saved) as source, own_directory(upper) as target:
                Trees(MOST).copy(source, target)

    def _fill(self, pid: int) -> None:
        trees = Trees(MOST)
        try:
            for number, place in enumerate(self._places):
                saved = os.path.join(self._directory, PLACES, str(number))
                with own_directory(saved) as source, directory_inside(pid, place) as target:
                    trees.copy(source, target)
        except OSError as problem:
            raise SandboxError("the checkpoint's files cannot be put back: {problem}", problem=problem) from problem


def for_fork(config: Config) -> Config:
    """The configuration of a fork: the project under a layer of its own, and free ports."""
    forked: Config = config.copy()
    filesystem = forked.filesystem
    if not (filesystem.read_only or filesystem.overlay):
        filesystem.overlay = True
    forked.network.publish = [_any_port(one) for one in forked.network.publish]
    return forked


def _any_port(rule: str) -> str:
    """`127.0.0.1:8080:80` as `127.0.0.1:0:80`: two sandboxes cannot publish the same port."""
    parts = rule.rsplit(":", 2)
    return ":".join([*parts[:-2], "0", parts[-1]]) if len(parts) > 1 else f"0:{rule}"


def given_again(saved: Mapping[str, Any], given: Mapping[str, Any], owner: Config | None = None) -> dict[str, Any]:
    """A checkpoint's configuration with `given` over it, and with values that `owner` has in the same place.

    Raises ConfigError for a value that is still missing.
    """
    found = _merged(saved if owner is None else _filled(saved, owner.plain(), owner.whole()), given)
    _check(found, "")
    return found


def restored_config(
    saved: Mapping[str, Any], given: Mapping[str, Any], owner: Callable[[str], Config] | None
) -> Config:
    """What a sandbox is restored with. `owner` is called with the project, only if values are missing."""
    from sandbox.config.model import Config

    try:
        return Config.read(given_again(saved, given))
    except ConfigError:
        if owner is None:
            raise
    return Config.read(given_again(saved, given, owner(saved["filesystem"]["root"])))


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def _filled(saved: Mapping[str, Any], shown: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """`saved`, with the owner's values (`whole`) where it says the same as the owner's configuration shows.

    A credential counts as one, with its hosts, and the script's with the script: the owner's value must not go to a
    host or a script that the owner did not give it to.
    """
    found = dict(saved)
    for key, value in saved.items():
        if key == "policy_secrets" and saved.get("policy_script") != shown.get("policy_script"):
            continue
        mine = shown.get(key)
        if value == mine:
            found[key] = whole[key]
        elif key == "secrets" and isinstance(value, dict) and isinstance(mine, dict):
            found[key] = {name: whole[key][name] if mine.get(name) == one else one for name, one in value.items()}
        elif isinstance(value, dict) and isinstance(mine, dict):
            found[key] = _filled(value, mine, whole[key])
    return found


def _check(value: Any, path: str) -> None:
    from sandbox.config.section import REDACTED

    if value == REDACTED or (path == "network.upstream_proxy" and f":{REDACTED}@" in str(value)):
        raise ConfigError("a checkpoint does not hold this value: give it again", path=path)
    if isinstance(value, dict):
        for key, inner in value.items():
            _check(inner, f"{path}.{key}" if path else str(key))
