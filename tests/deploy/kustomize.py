"""The part of Kustomize that deploy/ uses, for machines without it; a test compares the two where `kubectl` is there.

A patch that does not hit exactly one object, or a path that is not there, is an error here as it is there.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KNOWN = {
    "apiVersion", "kind", "namespace", "resources", "components", "patches", "configMapGenerator", "generatorOptions",
}  # fmt: skip
NOT_IN_A_NAMESPACE = {"Namespace", "RuntimeClass"}

Object = dict[str, Any]


def render(directory: Path) -> list[Object]:
    """Every object of a kustomization."""
    return _apply(directory, [])


def _apply(directory: Path, given: list[Object]) -> list[Object]:
    """What a kustomization makes of the objects that it is given: a component's are its user's."""
    (said,) = yaml.safe_load_all((directory / "kustomization.yaml").read_text(encoding="utf-8"))
    assert set(said) <= KNOWN, f"{directory}: {set(said) - KNOWN}"
    objects = given
    for name in said.get("resources", ()):
        path = (directory / name).resolve()
        objects = objects + (render(path) if path.is_dir() else _read(path))
    objects += [_config_map(directory, one) for one in said.get("configMapGenerator", ())]
    for name in said.get("components", ()):
        objects = _apply((directory / name).resolve(), objects)
    for one in said.get("patches", ()):
        _patch(objects, one)
    for one in objects if "namespace" in said else ():
        if one["kind"] not in NOT_IN_A_NAMESPACE:
            one["metadata"]["namespace"] = said["namespace"]
    return objects


def _read(path: Path) -> list[Object]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def _config_map(directory: Path, said: Object) -> Object:
    assert set(said) == {"name", "namespace", "files"}
    data = {name: (directory / name).read_text(encoding="utf-8") for name in said["files"]}
    meta = {"name": said["name"], "namespace": said["namespace"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def _patch(objects: list[Object], said: Object) -> None:
    target = said["target"]
    (hit,) = [
        one
        for one in objects
        if one["apiVersion"] == f"{target['group']}/{target['version']}"
        and (one["kind"], one["metadata"]["name"]) == (target["kind"], target["name"])
    ]
    for step in yaml.safe_load(said["patch"]):
        _change(hit, step)


def _change(where: Any, step: Object) -> None:
    """One step of a JSON patch (RFC 6902), as far as we use it."""
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
    for part in parents:
        where = where[int(part)] if isinstance(where, list) else where[part]
    key: Any = int(last) if isinstance(where, list) else last
    match step["op"]:
        case "add" if isinstance(where, dict):
            where[key] = copy.deepcopy(step["value"])
        case "replace":
            assert where[key] is not None
            where[key] = copy.deepcopy(step["value"])
        case "remove":
            del where[key]
        case other:
            raise AssertionError(other)
