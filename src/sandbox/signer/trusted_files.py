"""The signer uses no file that a tenant could have written: no program, no argument, no ABI, no key."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from sandbox.config.signing_section import Signing
from sandbox.errors import ConfigError
from sandbox.guards.signing_files import trusted
from sandbox.guards.written_places import written
from sandbox.network.secrets.programs import safe_path


def check(signing: Signing) -> None:
    """Raises ConfigError for a file that lies where tenants write, or ever wrote."""
    for path, key in _depended_on(signing):
        if is_tenants(path):
            raise ConfigError(
                "{place} is where sandboxes write; the signer uses nothing there. Move it, for example to {better}",
                place=path,
                better="~/.sandbox/signing",
                path=key,
            )


def program(signing: Signing) -> str:
    """The program of `signing.command`, as an absolute path. Raises ConfigError."""
    word = os.path.expanduser(signing.command[0])
    found = os.path.abspath(word) if "/" in word else shutil.which(word, path=safe_path())
    if found is None:
        raise ConfigError("{program} is not found", program=word, path="signing.command")
    return found


def is_tenants(path: str) -> bool:
    """Whether a tenant could have written the file, or the link at that path."""
    spelled = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return written(spelled) or written(os.path.realpath(path))


def _depended_on(signing: Signing) -> Iterator[tuple[str, str]]:
    if signing.backend == "keystore" and signing.keystore is not None:
        yield os.path.abspath(os.path.expanduser(signing.keystore)), "signing.keystore"
    if signing.backend == "command" and signing.command:
        yield program(signing), "signing.command"
        yield os.getcwd(), "signing.command"  # where it runs: interpreters load what lies there
    for path in trusted(signing):
        yield path, "signing"
