"""Writing a file completely or not at all."""

from __future__ import annotations

import os


def write_whole(file: str, text: str, mode: int = 0o600) -> None:
    """Replaces the file by one rename. After an error the old file is unchanged and no temporary file remains."""
    beside = f"{file}.{os.getpid()}.new"
    try:
        with open(beside, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)) as new:
            new.write(text)
        os.replace(beside, file)
    except BaseException:
        if os.path.lexists(beside):
            os.unlink(beside)
        raise
