"""`sandbox serve --token-file`: tokens that Kubernetes, or another program, keeps."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.errors import ConfigError
from sandbox.server.token_file import Given
from sandbox.server.tokens import Tokens
from tests.server.serving import Served

TOKEN = "sbx_" + "one" * 12
OTHER = "sbx_" + "two" * 12


def tokens(tmp_path: Path, text: str) -> Tokens:
    (tmp_path / "tokens").write_text(text)
    return Tokens(str(tmp_path / "none"), given=Given(str(tmp_path / "tokens")))


def test_a_token_of_the_file_may_do_what_its_line_says(tmp_path: Path) -> None:
    known = tokens(tmp_path, f"# ours\n\n{TOKEN} read,exec the build machine\n{OTHER}\n")
    access = known.check(TOKEN)
    assert access is not None
    assert (access.name, access.scopes) == ("the build machine", frozenset({"read", "exec"}))
    everything = known.check(OTHER)
    assert everything is not None and everything.may("host")
    assert known.check("sbx_" + secrets.token_urlsafe(32)) is None


def test_the_file_may_hold_the_hash_alone(tmp_path: Path) -> None:
    known = tokens(tmp_path, f"sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()} read\n")
    access = known.check(TOKEN)
    assert access is not None and access.scopes == {"read"}
    assert known.check(hashlib.sha256(TOKEN.encode()).hexdigest()) is None


def test_a_token_that_is_taken_out_of_the_file_ends_at_once(tmp_path: Path) -> None:
    # As Kubernetes does it: the file is a link, and the link is exchanged.
    for name, text in (("one", f"{TOKEN}\n"), ("two", f"{OTHER}\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "tokens").symlink_to("one")
    known = Tokens(str(tmp_path / "none"), given=Given(str(tmp_path / "tokens")))
    access = known.check(TOKEN)
    assert access is not None and known.lasts(access)
    (tmp_path / "new").symlink_to("two")
    os.rename(tmp_path / "new", tmp_path / "tokens")
    assert known.check(TOKEN) is None and not known.lasts(access)
    assert known.check(OTHER) is not None


@pytest.mark.parametrize("bad", ["", "short read\n", f"{OTHER} fly\n", "sha256:abc read\n"])
def test_a_file_that_is_gone_or_wrong_gives_no_token_at_all(tmp_path: Path, bad: str) -> None:
    known = tokens(tmp_path, f"{TOKEN}\n")
    if bad:
        (tmp_path / "tokens").write_text(f"{TOKEN}\n{bad}")
    else:
        (tmp_path / "tokens").unlink()
    assert known.check(TOKEN) is None


@pytest.mark.parametrize("bad", ["short read", f"{OTHER} fly", "sha256:abc read", OTHER * 4])
def test_a_wrong_line_stops_the_start_and_is_named_without_the_token(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tokens(tmp_path, f"{TOKEN}\n{bad}\n")
    assert f"{tmp_path}/tokens:2" in str(caught.value)
    assert TOKEN not in str(caught.value) and OTHER not in str(caught.value)


def test_a_server_takes_them(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN} read\n")
    served = Served(tmp_path, "--port", "0", "--token-file", str(tmp_path / "tokens"))
    try:
        with served.client(TOKEN) as client:
            assert client.get("/v1/me").json()["scopes"] == ["read"]
            assert client.post("/v1/sandboxes", json={"config": {}}).status_code == 403
    finally:
        served.end()


def test_a_server_whose_file_is_missing_does_not_start(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "sandbox.cli.main", "serve", "--port", "0", "--token-file", str(tmp_path / "no")]
    done = subprocess.run(
        words, env={**os.environ, "SANDBOX_HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "no such file" in done.stderr
