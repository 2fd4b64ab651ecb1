"""The person's own key that placeholders are derived with, in `~/.sandbox/credentials/key`. Light to import."""

from __future__ import annotations

import os

from sandbox.config.home import home

_KEY_SIZE = 32


def directory() -> str:
    """Where it is kept; made when it is not there. Raises OSError."""
    place = os.path.join(home(), "credentials")
    os.makedirs(place, mode=0o700, exist_ok=True)
    return place


def placeholder_key() -> bytes:
    """The person's own key; a passing one where none can be stored, whose placeholders last for one sandbox."""
    try:
        place = os.path.join(directory(), "key")
        for _ in range(2):
            try:
                with open(place, "rb") as file:
                    key = file.read()
                if len(key) == _KEY_SIZE:
                    return key
                os.unlink(place)
            except FileNotFoundError:
                pass
            _new_key(place)
    except OSError:
        pass
    return os.urandom(_KEY_SIZE)


def _new_key(place: str) -> None:
    """Several starts may make one at the same time: a link is made by one of them only."""
    beside = f"{place}.{os.urandom(8).hex()}"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(os.urandom(_KEY_SIZE))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(beside, place)
    except FileExistsError:
        pass
    finally:
        os.unlink(beside)
