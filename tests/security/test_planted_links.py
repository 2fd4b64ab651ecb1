"""No link that a tenant left behind leads a later sandbox to another directory of the person's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox import ConfigError, Sandbox
from sandbox.config.model import Secret
from sandbox.network.secrets.missing_value import Missing
from sandbox.network.secrets.sources import read

PRIVATE = "of-the-person-alone"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "sandbox-home"))


@pytest.fixture
def private(tmp_path: Path) -> Path:
    place = tmp_path / "private"
    place.mkdir()
    (place / "notes").write_text(PRIVATE)
    return place


@pytest.fixture
def planted(project: Path, private: Path) -> Path:
    """A directory of the project, with a file `notes`, in whose place a tenant has put a link."""
    (project / "data").mkdir()
    (project / "data" / "notes").write_text("for everybody")
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        assert sandbox.exec(f"mv data old && ln -s {private} data").ok
    return project / "data"


WAYS: dict[str, Any] = {
    "direct mount": {"vfs": {"direct_mounts": {"/mnt/x": {"host_path": "{}", "readonly": False}}}},
    "readonly mount": {"vfs": {"mounts": {"/mnt/x": {"type": "readonly", "host_path": "{}"}}}},
    "real_fs mount": {"vfs": {"mounts": {"/mnt/x": {"type": "real_fs", "host_path": "{}"}}}},
    "lower layer": {
        "vfs": {
            "mounts": {
                "/mnt/x": {
                    "type": "overlay",
                    "upper": {"type": "memory"},
                    "lower": {"type": "real_fs", "host_path": "{}"},
                }
            }
        }
    },
    "upper layer": {
        "vfs": {
            "mounts": {
                "/mnt/x": {
                    "type": "overlay",
                    "upper": {"type": "real_fs", "host_path": "{}"},
                    "lower": {"type": "real_fs", "host_path": "/usr/share"},
                }
            }
        }
    },
    "allow_read": {"filesystem": {"allow_read": ["{}"]}},
    "allow_write": {"filesystem": {"allow_write": ["{}"]}},
    "the project": {"filesystem": {"root": "{}"}},
    "an image": {"image": "{}"},
}


def filled(config: Any, path: Path) -> Any:
    if isinstance(config, Mapping):
        return {key: filled(value, path) for key, value in config.items()}
    if isinstance(config, list):
        return [filled(value, path) for value in config]
    return config.replace("{}", str(path)) if isinstance(config, str) else config


@pytest.mark.parametrize("way", WAYS)
def test_where_a_tenants_link_leads_is_not_shown_in_any_later_sandbox(tmp_path: Path, planted: Path, way: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for project in (planted.parent, other):
        config = {"filesystem": {"root": str(project)}}
        for key, value in filled(WAYS[way], planted).items():
            config[key] = {**config.get(key, {}), **value} if isinstance(value, Mapping) else value
        with pytest.raises(ConfigError, match="link"), Sandbox(config) as sandbox:
            sandbox.exec("true")
    assert [one.name for one in (tmp_path / "private").iterdir()] == ["notes"]


def test_nor_one_that_has_taken_the_place_of_a_directory_above(planted: Path, private: Path) -> None:
    (private / "deeper").mkdir()
    config = {"vfs": {"direct_mounts": {"/mnt/x": {"host_path": str(planted / "deeper")}}}}
    with pytest.raises(ConfigError, match="link"), Sandbox(config):
        pass


def test_nor_is_a_secret_read_through_one(planted: Path, private: Path) -> None:
    (private / "token").write_text("a-value-that-is-not-for-this-host")
    secret = Secret(from_file=str(planted / "token"), hosts=["api.example.com"])
    with pytest.raises(Missing, match="link"):
        read(secret, "network.secrets.KEY")
    secret = Secret(from_file=str(private / "token"), hosts=["api.example.com"])
    assert read(secret, "network.secrets.KEY")[0] == "a-value-that-is-not-for-this-host"


def test_a_link_within_the_project_and_one_of_the_persons_own_are_followed(
    tmp_path: Path, project: Path, private: Path
) -> None:
    (tmp_path / "mine").symlink_to(private)
    (project / "data").mkdir()
    (project / "data" / "notes").write_text("for everybody")
    root = {"filesystem": {"root": str(project)}}
    with Sandbox(root) as sandbox:
        assert sandbox.exec("ln -s data same").ok
    mounts = {"/mnt/a": {"host_path": str(tmp_path / "mine")}, "/mnt/b": {"host_path": str(project / "same")}}
    with Sandbox({**root, "vfs": {"direct_mounts": mounts}}) as sandbox:
        assert sandbox.exec("cat /mnt/a/notes /mnt/b/notes").stdout == f"{PRIVATE}for everybody"
