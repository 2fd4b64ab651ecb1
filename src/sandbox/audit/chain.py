"""The hash chain: each line carries its number and a hash of itself and of the line before.

    {"timestamp":…,"type":…,…,"seq":7,"hash":"<sha256 of (hash of line 6, newline, this line up to here)>"}

Altering, removing or reordering a line breaks the chain at that line. Cutting off the end does not, by itself: so the
last number and hash are kept in a second file (`head`), which a verifier compares. Whoever can write both files as
their owner can also forge both. The chain shows changes by anybody *else*, and by accident.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:
    # hashlib's own fallbacks: without OpenSSL, which takes too long to import at the start of a sandbox.
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:
        from hashlib import sha256

FIRST = "0" * 64
HASH_MARK = ',"hash":"'


def digest(data: bytes) -> str:
    """The SHA-256 of `data`."""
    return sha256(data).hexdigest()


def sealed(body: str, number: int, before: str) -> tuple[str, str]:
    """The complete line (with newline) for an entry's open JSON object, and its hash."""
    content = f'{body},"seq":{number}'
    digest = sha256(f"{before}\n{content}".encode()).hexdigest()
    return f'{content}{HASH_MARK}{digest}"}}\n', digest


def opened(line: str) -> tuple[str, int, str] | None:
    """A line's hashed part, its number and its hash; None if it is not a line of the record."""
    content, mark, rest = line.rpartition(HASH_MARK)
    digest, brace, after = rest.partition('"}')
    _, found, number = content.rpartition(',"seq":')
    if not (mark and brace and found) or after.strip("\n") or len(digest) != 64 or not number.isdecimal():
        return None
    return content, int(number), digest


def follows(content: str, digest: str, before: str) -> bool:
    """Whether `digest` is the hash of `content` after a line with the hash `before`."""
    return sha256(f"{before}\n{content}".encode()).hexdigest() == digest
