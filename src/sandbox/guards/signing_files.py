"""The files that the signer depends on: tenants neither read its key nor change what it runs or believes.

These are the files that this sandbox's configuration names, whether or not it has signing, and those that the last
signer of this home wrote down: a sandbox made by a program may have a different configuration from the user's.
"""

from __future__ import annotations

import json
import os

from sandbox.config.home import home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.config.model import Config
    from sandbox.config.signing_section import Signing


def place() -> str:
    """Where the signer writes them down."""
    return f"{home()}/signing/files"


def keystores(config: Config) -> dict[str, str]:
    """The encrypted keys, each with the rule that blocks it."""
    named = [config.signing.keystore] if config.signing.keystore else []
    found = (os.path.abspath(os.path.expanduser(path)) for path in (*named, *_noted()["hidden"]))
    return {path: "signing.keystore" for path in found if os.path.isfile(path)}


def frozen(config: Config) -> list[str]:
    """What must not be changed wherever tenants see it, as entries of `deny_write`."""
    from sandbox.config.glob_paths import escaped

    found = {os.path.realpath(path): None for path in (*trusted(config.signing), *_noted()["frozen"])}
    return [escaped(path) for path in found if os.path.isfile(path)]


def trusted(signing: Signing) -> Iterator[str]:
    """The program that signs, those of its arguments that are files, and the ABI files, as absolute paths."""
    for at, word in enumerate(signing.command):
        path = os.path.abspath(os.path.expanduser(word))
        if at == 0 and "/" not in word:
            from shutil import which

            path = which(word) or path
        if os.path.isfile(path):
            yield path
    for one in signing.contracts.values():
        if one.abi is not None:
            yield os.path.abspath(os.path.expanduser(one.abi))


def note(signing: Signing) -> None:
    """Writes down what a signer that starts now depends on. Its directory must exist."""
    hidden = [os.path.abspath(os.path.expanduser(signing.keystore))] if signing.keystore else []
    new = f"{place()}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump({"hidden": hidden, "frozen": list(trusted(signing))}, file)
    os.replace(new, place())


def _noted() -> dict[str, list[str]]:
    try:
        with open(place(), encoding="utf-8") as file:
            found: dict[str, list[str]] = json.load(file)
            return found
    except FileNotFoundError:
        return {"hidden": [], "frozen": []}
