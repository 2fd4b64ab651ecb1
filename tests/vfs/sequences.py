"""Random work of a tenant in an overlay, and what is seen of it from both sides. Runs inside as a program, too."""

from __future__ import annotations

import json
import os
import stat
import sys

NAMES = ["a", "b", "d", "d/x", "d/e", "d/e/y", "n", "n/z", "l"]


def places(sequences: list) -> list[str]:  # type: ignore[type-arg]
    """Where each sequence does its work: in a directory of its own, or, if there is but one, in the project's."""
    return ["."] if len(sequences) == 1 else [str(number) for number in range(len(sequences))]


def begin(root: str) -> None:
    """The host's tree that each sequence starts from."""
    os.makedirs(f"{root}/d/e")
    for name in ("a", "b", "d/x", "d/e/y"):
        with open(f"{root}/{name}", "w") as file:
            file.write(f"host {name}\n")
    os.symlink("a", f"{root}/l")


def do(root: str, step: list) -> None:  # type: ignore[type-arg]
    kind, one, other, number = step
    path, second = f"{root}/{one}", f"{root}/{other}"
    if kind == "write":
        with open(path, "a") as file:
            file.write(f"{number}\n")
    elif kind == "create":
        with open(path, "w") as file:
            file.write(f"new {number}\n")
    elif kind == "truncate":
        os.truncate(path, number)
    elif kind == "mkdir":
        os.mkdir(path)
    elif kind == "rename":
        rename(path, second)
    elif kind == "link":
        os.link(path, second, follow_symlinks=False)
    elif kind == "symlink":
        os.symlink(one, second)
    elif kind == "unlink":
        os.unlink(path)
    elif kind == "rmtree":
        remove(path)
    elif kind == "chmod":
        os.chmod(path, [0o644, 0o755, 0o700, 0o600, 0o500, 0o400, 0o000, 0o555][number % 8])


def rename(path: str, second: str) -> None:
    try:
        os.rename(path, second)
    except OSError as problem:
        if problem.errno != 18 or os.path.lexists(second):
            raise
        import shutil

        shutil.copytree(path, second, symlinks=True)  # as mv does
        remove(path)


def remove(path: str) -> None:
    import shutil

    shutil.rmtree(path)


def view(root: str) -> dict[str, list[object]]:
    """Kind, mode and content of everything. All modes are read before any file is opened up to be read: a file that has
    several names has one mode."""
    seen: dict[str, list[object]] = {}
    opened: list[tuple[str, int]] = []
    files: list[tuple[str, int]] = []
    waiting: list[str] = [root]
    while waiting:
        directory = waiting.pop()
        for name in sorted(os.listdir(directory)):
            path = f"{directory}/{name}"
            told = os.lstat(path)
            short, mode = path[len(root) + 1 :], stat.S_IMODE(told.st_mode)
            if stat.S_ISLNK(told.st_mode):
                seen[short] = ["link", 0, os.readlink(path)]
            elif stat.S_ISDIR(told.st_mode):
                seen[short] = ["directory", mode, ""]
                waiting.append(path)
                if mode & 0o500 != 0o500:
                    os.chmod(path, 0o700)
                    opened.append((path, mode))
            else:
                seen[short] = ["file", mode, ""]
                files.append((path, mode))
    for path, mode in files:
        seen[path[len(root) + 1 :]][2] = _content(path, mode, opened)
    for path, mode in reversed(opened):
        os.chmod(path, mode)
    return seen


def _content(path: str, mode: int, opened: list[tuple[str, int]]) -> str:
    try:
        with open(path) as file:
            return file.read()
    except PermissionError:
        # Its mode says so, or said so: overlayfs judges a file's second name by the mode that it had before it was
        # changed by the first.
        os.chmod(path, 0o700)
        opened.append((path, mode))
        with open(path) as file:
            return file.read()


def groups(root: str) -> list[list[str]]:
    """The names of each file that has several. Not asked inside: overlayfs may show two numbers for one file."""
    found: dict[int, list[str]] = {}
    for directory, _, names in os.walk(root):
        for name in names:
            told = os.lstat(f"{directory}/{name}")
            if stat.S_ISREG(told.st_mode):
                found.setdefault(told.st_ino, []).append(f"{directory}/{name}"[len(root) + 1 :])
    return sorted(sorted(names) for names in found.values() if len(names) > 1)


def main() -> None:
    views = []
    sequences = json.load(sys.stdin)
    for place, sequence in zip(places(sequences), sequences, strict=True):
        for step in sequence:
            try:
                do(place, step)
            except OSError:
                pass  # as a program would be told
        views.append(view(place))
    json.dump(views, sys.stdout)


if __name__ == "__main__":
    main()
