"""The person's own key, from which placeholders are derived: `~/.sandbox/credentials/key`. Light to import."""

from __future__ import annotations

import os

from sandbox.config.home import home

_KEY_SIZE = 32


def place() -> str:
    """Where credentials are kept. It need not exist."""
    return os.path.join(home(), "credentials")


def directory() -> str:
    """The same; creates it if it does not exist. Raises OSError."""
    os.makedirs(place(), mode=0o700, exist_ok=True)
    return place()


def placeholder_key() -> bytes:
    """The person's own key; where none can be stored, a temporary one, whose placeholders last for one sandbox."""
    try:
        file = os.path.join(directory(), "key")
        for _ in range(2):
            try:
                with open(file, "rb") as kept:
                    key = kept.read()
                if len(key) == _KEY_SIZE:
                    return key
                os.unlink(file)
            except FileNotFoundError:
                pass
            _new_key(file)
    except OSError:
        pass
    return os.urandom(_KEY_SIZE)


def _new_key(file: str) -> None:
    """Makes and stores a key. Several starts may do so at the same time: only one of them can create the link."""
    beside = f"{file}.{os.urandom(8).hex()}"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
        new.write(os.urandom(_KEY_SIZE))
        new.flush()
        os.fsync(new.fileno())
    try:
        os.link(beside, file)
    except FileExistsError:
        pass
    finally:
        os.unlink(beside)
