"""What git does inside the walls: the branch is checked out before the first command, and packed after the last one.

All of it runs as a tenant, with the tenants' own git and settings. What it prints is hostile: bounded, and believed
only where `received_commits` can check it.
"""

from __future__ import annotations

import os

from sandbox.branches.received_commits import is_commit_name
from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import IO, Protocol

    from sandbox.branches.target import Target
    from sandbox.guest.process import Process
    from sandbox.result import ExecResult

    class Place(Protocol):
        """What runs commands inside."""

        def exec(
            self, command: Sequence[str], *, env: Mapping[str, str], input: bytes | None, timeout: float
        ) -> ExecResult: ...

        def _begin(
            self, command: Sequence[str], *, env: Mapping[str, str], input: bytes | None, timeout: float
        ) -> Process: ...


PATIENCE = 600.0  # seconds for one command of git
MOST_PACK = 4 * 2**30  # bytes
MOST_LISTED = 2**26
# Not for safety, which the walls provide: a hook or a monitor could be slow, or hang.
SETTINGS = {"core.hooksPath": os.devnull, "core.fsmonitor": "false", "core.quotePath": "false", "gc.auto": "0"}


def as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Variables that make git take these settings, whatever its files say."""
    return {
        "GIT_CONFIG_COUNT": str(len(settings)),
        **{f"GIT_CONFIG_KEY_{at}": key for at, key in enumerate(settings)},
        **{f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(settings.values())},
    }


#: For everything that runs inside: the person's key is not there, so a commit that has to be signed would fail.
UNSIGNED = as_variables({"commit.gpgSign": "false", "tag.gpgSign": "false"})
VARIABLES = {
    **as_variables(SETTINGS),
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_EDITOR": "true",
    "LC_ALL": "C",
}


class GitInside:
    """git in one sandbox."""

    def __init__(self, place: Place, target: Target) -> None:
        self._place = place
        self._target = target

    # -- before

    def check_out(self, masked: Iterable[str]) -> None:
        """Puts HEAD on the branch, and resets the work tree if it existed. `masked`: blocked paths in the project,
        which git leaves alone from now on. Raises SandboxError with git's own words."""
        target = self._target
        self._leave_alone(sorted(masked))
        if not target.existed:
            self._do("update-ref", target.ref, target.start, "")
        self._do("symbolic-ref", "HEAD", target.ref)
        if target.existed:
            self._do("reset", "-q", "--hard")

    def _leave_alone(self, masked: Sequence[str]) -> None:
        """A blocked file that is tracked looks unchanged to git, and one that is not is ignored: otherwise `git add -A`
        fails on it."""
        if not masked:
            return
        tracked = self._list("ls-files", "-z")
        kept = [one for one in tracked if any(one == path or one.startswith(f"{path}/") for path in masked)]
        if kept:
            self._do("update-index", "-z", "--skip-worktree", "--stdin", input=b"\0".join(map(os.fsencode, kept)))
        lines = (f"/{_escaped(path)}" for path in masked if "\n" not in path)
        script = 'file=$(git rev-parse --git-path info/exclude) && mkdir -p "${file%/*}" && cat >> "$file"'
        self._run(["/bin/sh", "-c", script], b"\n" + b"".join(os.fsencode(line) + b"\n" for line in lines))

    # -- after

    def tip(self) -> str | None:
        """The branch's commit inside; None when a tenant has removed it."""
        said = self._run(["git", "rev-parse", "--verify", "-q", f"{self._target.ref}^{{commit}}"], check=False).strip()
        return said if is_commit_name(said) else None

    def is_on_branch(self) -> bool:
        """Whether HEAD is still on the branch."""
        said = self._run(["git", "symbolic-ref", "-q", "HEAD"], check=False)
        return said.strip() == self._target.ref

    def named(self) -> list[str]:
        """The objects that refs inside name, the stash included; empty when git cannot tell."""
        return self._run(["git", "for-each-ref", "--format=%(objectname)"], check=False).split()

    def uncommitted(self, changed: Sequence[str]) -> list[str]:
        """Which of the paths that the sandbox `changed` have changes that no commit has; ignored ones do not count."""
        said = self._list("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
        tops = set(changed)
        found = []
        for entry in said:
            path = entry[3:]
            steps = path.split("/")
            if any("/".join(steps[: end + 1]) in tops for end in range(len(steps))):
                found.append(path)
        return found

    def commit(self, paths: Sequence[str], message: str) -> None:
        """Commits these paths, and what is staged, on the branch. Raises SandboxError with git's own words."""
        named = b"\0".join(map(os.fsencode, paths))
        self._do("add", "-A", "--pathspec-from-file=-", "--pathspec-file-nul", input=named)
        nobody = [] if self._run(["git", "var", "GIT_COMMITTER_IDENT"], check=False) else NOBODY
        self._do(*nobody, "commit", "-q", "--no-verify", "--no-gpg-sign", "-m", message)

    def pack(self, tip: str, file: IO[bytes]) -> None:
        """Writes the objects that `tip` has and the branch's start lacks. Raises SandboxError."""
        wanted = f"{tip}\n^{self._target.start}\n".encode()
        command = ["git", "pack-objects", "-q", "--revs", "--stdout"]
        size, said = 0, b""
        with self._place._begin(command, env=VARIABLES, input=wanted, timeout=PATIENCE) as process:
            for chunk in process.chunks():
                if chunk.stream == "stderr":
                    said = (said + chunk.data)[-4096:]
                    continue
                size += len(chunk.data)
                if size > MOST_PACK:
                    raise SandboxError("the commits are larger than {size} bytes", size=MOST_PACK)
                file.write(chunk.data)
            result = process.result
        file.flush()
        if result is None or result.exit_code:
            raise SandboxError("git inside: {reason}", reason=said.decode("utf-8", "replace").strip()[-500:])

    # -- running

    def _do(self, *words: str, input: bytes | None = None) -> None:
        self._run(["git", *words], input)

    def _list(self, *words: str) -> list[str]:
        return [one for one in self._run(["git", *words]).split("\0") if one]

    def _run(self, command: Sequence[str], input: bytes | None = None, *, check: bool = True) -> str:
        said, complaint, size = bytearray(), b"", 0
        with self._place._begin(command, env=VARIABLES, input=input, timeout=PATIENCE) as process:
            for chunk in process.chunks():
                size += len(chunk.data)
                if size > MOST_LISTED:
                    raise SandboxError("git inside prints too much")
                if chunk.stream == "stderr":
                    complaint = (complaint + chunk.data)[-4096:]
                else:
                    said += chunk.data
            result = process.result
        if check and (result is None or result.exit_code):
            reason = complaint.decode("utf-8", "replace").strip()[-500:]
            raise SandboxError("git inside: {reason}", reason=reason or "failed")
        return os.fsdecode(bytes(said)) if result is not None and not result.exit_code else ""


NOBODY = ["-c", "user.name=sandbox", "-c", "user.email=sandbox@localhost"]


def _escaped(path: str) -> str:
    """A gitignore pattern that matches exactly this path."""
    text = "".join(f"\\{sign}" if sign in "\\*?[" else sign for sign in path)
    return text[:-1] + "\\ " if text.endswith(" ") else text
