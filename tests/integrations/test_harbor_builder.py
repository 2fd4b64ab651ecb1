"""harbor's Dockerfiles are built on this machine: by a program of its own, not by one that a tenant left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import SandboxError
from sandbox.integrations.harbor_images import BUILDERS, _built
from tests.sandboxes import home

__all__ = ["home"]
pytestmark = pytest.mark.walls


def test_a_builder_that_a_tenant_left_on_the_owners_path_is_not_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "project" / "bin"
    with Sandbox({"filesystem": {"root": str(tmp_path / "project")}}) as tenant:
        tenant.mkdir("bin")
        for name in BUILDERS:
            tenant.write_text(f"bin/{name}", f"#!/bin/sh\ntouch {place}/ran-outside\nexit 1\n", mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    with pytest.raises(SandboxError):
        _built(tmp_path / "nothing")  # a context that no builder can build
    assert not (place / "ran-outside").exists()
