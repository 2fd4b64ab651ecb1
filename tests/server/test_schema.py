"""schemathesis against the OpenAPI document: no request, however odd, makes the server fail."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.server.serving import Served

# What ends or changes the host, or never ends by itself, is left out; the other tests have it.
EXCLUDED = "/(kill|docker/start|stream|platform|release)"


def test_no_request_makes_the_server_fail(served: Served, box: str) -> None:
    command = [
        os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", f"{served.address}/schema/openapi.json",
        "--header", f"Authorization: Bearer {served.new_token('*', sandboxes=[box])}",
        "--checks", "not_a_server_error",
        "--phases", "examples,fuzzing", "--max-examples", "8", "--exclude-path-regex", EXCLUDED,
        "--suppress-health-check", "all", "--generation-deterministic", "--workers", "2", "--request-timeout", "30",
    ]  # fmt: skip
    (served.home / "schemathesis.toml").write_text(f'[parameters]\n"path.id" = "{box}"\n')  # one that is there
    done = subprocess.run(command, capture_output=True, text=True, env=served.environment, check=False, cwd=served.home)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
