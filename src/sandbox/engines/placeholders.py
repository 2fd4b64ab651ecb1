"""What programs on the host act on must not be *made* from inside either, where it does not exist yet.

Only what exists can be frozen. In a git repository, which people open in editors, directories (`.vscode`, `.claude`, …)
therefore are made, empty, for as long as the sandbox lives: git does not see them, and they go with it. An empty file
in their place would be seen, and committed; so files (`.mcp.json`, …), and everything in a directory that is no
repository, are only looked for at the end, and told.
"""

from __future__ import annotations

import os

# Few, since each costs a start and an end a little. Our own (`.sandbox`, `.uds`) can only tighten, so they may be made.
DIRECTORIES = (".claude", ".cursor", ".idea", ".vscode", ".git/hooks")
FILES = (".mcp.json", ".envrc", ".gitmodules", ".git", ".sandbox", ".uds")
# Read from the home directory; elsewhere they are files like any other.
HOME_FILES = (".gitconfig", ".bashrc", ".bash_profile", ".bash_login", ".zshrc", ".zshenv", ".zprofile", ".profile")


class Placeholders:
    """The empty directories of one sandbox's project."""

    def __init__(self, root: str) -> None:
        """Makes those that are missing. Where that is not possible a tenant cannot make them either."""
        self._made: list[str] = []
        names = FILES + (HOME_FILES if root == os.path.realpath(os.path.expanduser("~")) else ())
        for path in (f"{root}/{name}" for name in DIRECTORIES if os.path.lexists(f"{root}/.git")):
            try:
                os.mkdir(path, 0o755)
            except OSError:
                continue
            self._made.append(path)
        looked_for = (f"{root}/{name}" for name in (*names, *DIRECTORIES))
        self._absent = [path for path in looked_for if not os.path.lexists(path)]

    def remove(self) -> None:
        """Takes away what was made here and is still empty. Idempotent."""
        for path in self._made:
            try:
                os.rmdir(path)
            except OSError:
                pass  # somebody on the host uses it by now
        self._made.clear()

    def appeared(self) -> list[str]:
        """Files that programs on the host act on and that were made since the start, by whomever."""
        return [path for path in self._absent if os.path.lexists(path)]
