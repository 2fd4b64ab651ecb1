"""Writing a file completely or not at all."""

from __future__ import annotations

import os


def write_whole(file: str, text: str, mode: int = 0o600) -> None:
    """Replaces the file by one rename. After an error the old file is unchanged and no temporary file remains."""
    # A name of its own for each call, and never a file or link that is there: threads write too, and so do tenants.
    beside = f"{file}.{os.urandom(8).hex()}.new"
    with open(beside, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)) as new:
        try:
            new.write(text)
            new.flush()
            os.replace(beside, file)
        except BaseException:
            if os.path.lexists(beside):  # an interrupt can come right after the rename
                os.unlink(beside)
            raise
