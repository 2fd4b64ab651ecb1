"""Milady's SandboxManagerConfig: a sandbox described as a container."""

from __future__ import annotations

import re

from sandbox.config.dialects.table import ALWAYS, NO_HOSTS, Translated, boolean, text_list
from sandbox.config.dialects.table import translate as by_table
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_USER = re.compile(r"[a-z_0-9][a-z0-9_-]{0,31}(:[a-z_0-9][a-z0-9_-]{0,31})?")


def _network(value: object) -> dict[str, Any]:
    if value == "none":
        return {
            **NO_HOSTS,
            "network.policy_script": None,
            "network.ask": False,
            "network.unix_sockets": [],
            "network.localhost_ports": [],
        }
    if value == "bridge":
        return {}  # through the gate, as always
    raise ConfigError(
        "must be none or bridge, not {value!r}, because every connection goes through the gate", value=value
    )


def _binds(value: object) -> dict[str, Any]:
    mounts = {}
    for bind in text_list(value):
        host, _, rest = bind.partition(":")
        inside, _, flags = rest.partition(":")
        if not (host.startswith("/") and inside.startswith("/")) or not set(flags.split(",")) <= {
            "",
            "ro",
            "rw",
            "z",
            "Z",
        }:
            raise ConfigError("must be host:inside or host:inside:ro, not {bind!r}", bind=bind)
        mounts[inside] = {"host_path": host, "readonly": "ro" in flags.split(",")}
    return {"vfs.direct_mounts": mounts}


def _milliseconds(value: object) -> dict[str, Any]:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ConfigError("must be a number of milliseconds, not {value!r}", value=value)
    return {"browser.auto_start_timeout": value / 1000}


def _user(value: object) -> dict[str, Any]:
    """`uid`, `uid:gid` or a name. Root is root as far as the engine allows; anybody else is the ordinary user."""
    if not isinstance(value, str) or not _USER.fullmatch(value):
        raise ConfigError("must be uid:gid, not {value!r}", value=value)
    return {"user": "root" if value.partition(":")[0] in ("0", "root") else "user"}


def _cpus(value: object) -> dict[str, Any]:
    """A number: the text that our own `limits.cpus` takes as well is no type of this specification."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError("must be a number of processors such as 1.5, not {value!r}", value=value)
    return {"limits.cpus": value}


def _boolean(value: object) -> dict[str, Any]:
    boolean(value)
    return {}


def _texts(value: object) -> dict[str, Any]:
    text_list(value)
    return {}


def _dns(value: object) -> dict[str, Any]:
    """Only the empty list: the gate resolves allowed names, and never asks a server that a configuration names."""
    if text_list(value):
        raise ConfigError("cannot be chosen: the gate is the only resolver inside, and asks this machine's own")
    return {}


TABLE: Mapping[str, Any] = {
    "mode": "mode",
    "image": "image",
    "engineType": "engine",
    "memory": "limits.memory",
    "cpus": _cpus,
    "pidsLimit": "limits.pids",
    "env": "environment.set",
    "network": _network,
    "binds": _binds,
    "workspaceRoot": "filesystem.root",
    "containerPrefix": "container_prefix",
    "user": _user,
    # The root is always read-only, and every capability is dropped.
    "readOnlyRoot": _boolean,
    "capDrop": _texts,
    "dns": _dns,
    "workdir": ALWAYS,
    "browser.enabled": "browser.enabled",
    "browser.image": "browser.image",
    "browser.cdpPort": "browser.cdp_port",
    "browser.vncPort": "browser.vnc_port",
    "browser.headless": "browser.headless",
    "browser.autoStart": "browser.auto_start",
    "browser.autoStartTimeoutMs": _milliseconds,
}


def translate(data: Mapping[str, Any]) -> Translated:
    """A manager's config in our spelling. A `workdir` is the workspace at a second path."""
    into = by_table(data, TABLE)
    if data.get("readOnlyRoot") is False:
        into.without_effect.append("readOnlyRoot")
    workdir = data.get("workdir")
    if workdir is not None:
        if not isinstance(workdir, str) or not workdir.startswith("/"):
            raise ConfigError("must be an absolute path, not {workdir!r}", workdir=workdir, path="workdir")
        mount = {workdir: {"host_path": data.get("workspaceRoot", "."), "readonly": False}}
        into.put("vfs.direct_mounts", mount, "workdir")
    return into
