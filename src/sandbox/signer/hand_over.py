"""Hands the encrypted key and its password to the process behind the walls, and ends.

A separate process, so that the password is never in the memory of a long-lived one. `main` is given KEYSTORE [FD]: the
password comes from the descriptor FD, or is asked for at the terminal.
"""

from __future__ import annotations

import json
import os
import sys

LONGEST = 64 * 1024


def password(descriptor: int | None) -> str:
    """The first line from the descriptor, or what is typed."""
    if descriptor is None:
        from getpass import getpass

        return getpass("password of the key: ")
    data = b""
    while b"\n" not in data and len(data) < LONGEST:
        piece = os.read(descriptor, LONGEST)
        if not piece:
            break
        data += piece
    return data.split(b"\n", 1)[0].decode("utf-8")


def main(words: list[str]) -> int:
    told: dict[str, object]
    try:
        with open(words[0], encoding="utf-8") as file:
            keystore = json.loads(file.read(LONGEST))
        told = {"keystore": keystore, "password": password(int(words[1]) if words[1:] else None)}
    except (OSError, ValueError, EOFError) as problem:
        told = {"error": f"the keystore or its password cannot be read: {type(problem).__name__}"}
    sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
    return 0
