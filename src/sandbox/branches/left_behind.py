"""What a sandbox committed and its branch does not have: on other branches, as tags, in the stash, in submodules.

Only the branch is brought over. An overlay that holds more has the only copy of it, so the overlay is kept.
"""

from __future__ import annotations

import os
import tempfile

from sandbox.branches.received_commits import is_commit_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandbox.branches.target import Target

MOST_LOOKED_AT = 200_000  # entries of submodules' repositories


def is_elsewhere(target: Target, names: Iterable[str]) -> bool:
    """Whether a ref inside names an object that the repository lacks. `names`: the objects of all refs inside, the
    branch's own included. True when it is empty: then git inside could not list them."""
    named = set(names)
    if not named or not all(map(is_commit_name, named)):
        return True
    known = target.git.ask("for-each-ref", "--format=%(objectname)") or ""
    unknown = named.difference(known.split())
    if not unknown:
        return False
    with tempfile.TemporaryFile() as asked:
        asked.write("".join(f"{name}\n" for name in sorted(unknown)).encode())
        asked.seek(0)
        done = target.git.run("cat-file", "--batch-check=%(objectname)", stdin=asked)
    return done.returncode != 0 or b" missing\n" in done.stdout


def is_in_submodules(target: Target, layer: str) -> bool:
    """Whether the overlay in `layer` has objects of submodules that the host's repositories of these lack."""
    upper = f"{layer}/upper/.git" if target.inside_project else f"{layer}/git/upper"
    tops = [f"{upper}/modules"]
    trees = f"{upper}/worktrees"
    if os.path.isdir(trees) and not os.path.islink(trees):
        tops += (f"{trees}/{name}/modules" for name in os.listdir(trees))
    looked_at = 0
    for top in tops:
        for path in _files(top):
            looked_at += 1
            if looked_at > MOST_LOOKED_AT:
                return True
            below = path[len(upper) + 1 :]
            if "/objects/" in below and not os.path.lexists(f"{target.common}/{below}"):
                return True
    return False


def _files(top: str) -> Iterator[str]:
    """Every file below `top`, following no link there. What cannot be read is left out: a tenant hid it from itself."""
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield entry.path
        except OSError:
            continue
