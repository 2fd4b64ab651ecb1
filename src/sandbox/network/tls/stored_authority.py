"""The user's certificate authority for sandboxes, and the files that make tenants trust it: created once, then mounted.

A client shows a refusal over https only if it trusts the server, so every sandbox trusts the gate from its start.
Creating an authority and a bundle takes tenths of a second, so they are stored for all sandboxes of a user:

    ~/.sandbox/authority/for-<system> -> <generation>  what new sandboxes use on a system with these certificates
    ~/.sandbox/authority/<generation>/key.pem         mode 600, never shown inside
                                      sandbox-ca.pem, sandbox-ca-bundle.pem, sandbox-cacerts
                                      stamp           the system's certificates this was made from
                                      trusted         what covers what, and the variables

A generation never changes. When the system's certificates change, or it is half a year old, the next sandbox creates
another; running sandboxes keep theirs. A home that several systems share has one for each. Only sandboxes trust this
authority, and their traffic ends at the gate, so its key opens nothing else. Light to import: usually a start does only
a few `stat`s.
"""

from __future__ import annotations

import os

from sandbox.config.home import authority_directory
from sandbox.network.tls.system_certificates import BUNDLES, JAVAS, KEY_STORES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.network.tls.trust import TrustFiles

FILES = ("sandbox-ca.pem", "sandbox-ca-bundle.pem", "sandbox-cacerts")
SOURCES = (*BUNDLES, *KEY_STORES, JAVAS)
_YEAR = 365 * 86400
_RENEWED = 180 * 86400  # a certificate is valid for a year; no sandbox should outlive its own
_VERSION = "1"


class Generation:
    """One authority with its files, as it was when the sandbox started."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.covered: list[tuple[str, str]] = []  # a system file, and the path inside of the file that covers it
        self.environment: dict[str, str] = {}
        self.added: list[tuple[str, str]] = []  # files where the system has none: the path on the host, and inside
        with open(f"{directory}/trusted", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                kind, name, value = line.rstrip("\n").split("\t")
                if kind == "cover":
                    self.covered.append((name, value))
                else:
                    self.environment[name] = value

    def files(self) -> list[tuple[str, str]]:
        """What is mounted: the host's file and its path in the sandbox."""
        return [*((f"{self.directory}/{name}", f"/etc/{name}") for name in FILES), *self.added]


def current() -> Generation | None:
    """The generation for a new sandbox, created if needed. None where it cannot be stored."""
    where, stamp = authority_directory(), _stamp()
    try:
        directory = os.path.join(where, os.readlink(f"{where}/{_link(stamp)}"))
        with open(f"{directory}/stamp", encoding="utf-8", errors="surrogateescape") as file:
            if file.read() == stamp and _young(directory):
                return Generation(directory)
    except (OSError, ValueError):
        pass
    try:
        return Generation(_made(where, stamp))
    except OSError:
        return None


def _link(stamp: str) -> str:
    """The name of the link for this system. Two systems that share it by chance replace each other's generation."""
    return f"for-{int.from_bytes(stamp.encode('utf-8', 'surrogateescape'), 'big') % (2**61 - 1):x}"


def _stamp() -> str:
    """The state of the system's certificates."""
    lines = [_VERSION]
    for path in SOURCES:
        try:
            found = os.stat(path)
        except OSError:
            continue
        lines.append(f"{path} {found.st_ino} {found.st_size} {found.st_mtime_ns}")
    return "\n".join(lines) + "\n"


def _young(directory: str) -> bool:
    import time

    return time.time() - os.stat(f"{directory}/key.pem").st_mtime < _RENEWED


def _made(where: str, stamp: str) -> str:
    """A new generation, complete before the link points to it. Several may be created at once: each is complete, and
    the last one stays."""
    from sandbox.network.tls.ca import Authority
    from sandbox.network.tls.trust import trusted

    os.makedirs(where, mode=0o700, exist_ok=True)
    name = os.urandom(8).hex()
    directory = os.path.join(where, name)
    os.mkdir(directory, 0o700)
    authority = Authority()
    trust = trusted(authority.pem)
    write(f"{directory}/key.pem", authority.key_pem(), 0o600)
    for path, _, content in trust.files:
        write(f"{directory}/{os.path.basename(path)}", content, 0o644)
    write(f"{directory}/trusted", listed(trust), 0o600)
    write(f"{directory}/stamp", stamp.encode("utf-8", "surrogateescape"), 0o600)
    os.symlink(name, f"{where}/.{name}")
    os.rename(f"{where}/.{name}", f"{where}/{_link(stamp)}")
    _forget_old(where)
    return directory


def listed(trust: TrustFiles) -> bytes:
    """What covers what, and the variables, as `Generation` reads it."""
    lines = [f"cover\t{path}\t{by}" for path, by in trust.covered]
    lines += [f"set\t{name}\t{value}" for name, value in trust.environment.items()]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def write(path: str, content: bytes, mode: int) -> None:
    """Writes a new file and waits until it is on the disk."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # a power failure must not leave an incomplete generation


def _forget_old(where: str) -> None:
    """Removes generations whose certificates have expired."""
    import shutil
    import time

    for name in os.listdir(where):
        path = os.path.join(where, name)
        try:
            if time.time() - os.lstat(path).st_mtime <= _YEAR:
                continue
            if os.path.islink(path):
                os.unlink(path)
            else:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # another start removed it first
