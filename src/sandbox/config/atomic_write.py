"""Writing a file whole or not at all."""

from __future__ import annotations

import os


def write_whole(file: str, text: str, mode: int = 0o600) -> None:
    """Puts `text` in the file's place by one rename. After an error the old one is as it was, nothing beside it."""
    beside = f"{file}.{os.getpid()}.new"
    try:
        with open(beside, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)) as new:
            new.write(text)
        os.replace(beside, file)
    except BaseException:
        if os.path.lexists(beside):
            os.unlink(beside)
        raise
