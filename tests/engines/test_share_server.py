"""The file server of a virtual machine, against a machine whose kernel is a tenant's: no frame makes it do more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.guest.binary import guest_binary

CLIENT = Path(__file__).parent / "share_client.py"


@pytest.mark.parametrize("seed", range(4))
def test_no_request_crashes_it_or_leads_it_elsewhere(tmp_path: Path, seed: int) -> None:
    project = tmp_path / "project"
    (project / "directory").mkdir(parents=True)
    (project / "file").write_text("content")
    (tmp_path / "outside").write_text("untouched")
    shutil.copy(guest_binary(), project / "guest")
    shutil.copy(CLIENT, project / "client.py")
    with Sandbox({"engine": "bubblewrap", "filesystem": {"root": str(project)}}) as sandbox:
        result = sandbox.exec(["/usr/bin/python3", "client.py", str(seed)], timeout=120)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == []
    assert (tmp_path / "outside").read_text() == "untouched"
