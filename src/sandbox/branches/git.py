"""The host's git, set up to start nothing: no hook, no helper, no transport, and no setting of the person or a tenant
beyond the repository's own format.

What it reads may have come from inside. It is only used to look at objects, to index a pack, and to set one ref.
"""

from __future__ import annotations

import os
import subprocess

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

# Fixed, as for bwrap: a git that a project put on PATH would run outside the walls.
PLACES = (
    "/usr/bin/git", "/usr/local/bin/git", "/bin/git", "/opt/homebrew/bin/git", "/run/current-system/sw/bin/git",
)  # fmt: skip
OVERRIDES = (
    "core.hooksPath=/dev/null",  # setting a ref would run `reference-transaction`
    "core.fsmonitor=false",
    "core.useReplaceRefs=false",  # an object is what its name says
    "protocol.allow=never",  # nothing is fetched: no submodule, no missing object of a partial clone
    "transfer.fsckObjects=true",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
)
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_COMMITTER_NAME": "sandbox",  # for the reflog
    "GIT_COMMITTER_EMAIL": "sandbox@localhost",
}


class Git:
    """git with one repository, named and never searched for."""

    def __init__(self, directory: str, common: str) -> None:
        """`directory`: of this work tree; `common`: where the objects and branches are. Raises SandboxError."""
        found = next((path for path in PLACES if os.access(path, os.X_OK)), None)
        if found is None:
            raise SandboxError("git is not installed on this machine; --branch needs it")
        self._program = found
        self.directory = directory
        self.common = common

    def ask(self, *words: str, ok: tuple[int, ...] = (0,), environment: Mapping[str, str] | None = None) -> str | None:
        """git's output; None when it fails with a status in `ok`. Raises SandboxError when it fails otherwise."""
        done = self.run(*words, environment=environment)
        if done.returncode == 0:
            return os.fsdecode(done.stdout).rstrip("\n")
        if done.returncode in ok:
            return None
        raise SandboxError("git {command}: {reason}", command=words[0], reason=reason(done.stderr))

    def run(
        self, *words: str, stdin: IO[bytes] | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs it to its end."""
        overrides = [word for one in OVERRIDES for word in ("-c", one)]
        return subprocess.run(
            [self._program, "--no-pager", *overrides, *words],
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd="/",
            env={**ENVIRONMENT, "GIT_DIR": self.directory, "GIT_COMMON_DIR": self.common, **(environment or {})},
        )


def reason(said: bytes) -> str:
    """The last line of what git complained about."""
    lines = said[-4096:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else "failed"
