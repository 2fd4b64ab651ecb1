"""A profile as a layer of the configuration, and as a command line."""

from __future__ import annotations

import os

from sandbox.errors import SandboxError
from sandbox.policy.protected import protected_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sandbox.profiles.profile import Profile


# Programs answer these at once, without reading settings, unless there are other flags too.
ABOUT_ITSELF = ("--version", "-v", "-V", "--help", "-h")


def layer(name: str, profile: Profile, program: str | None, *, trust: bool, own: str) -> dict[str, Any]:
    """What the profile asks for, without its hosts (`config.layers.resolve` adds those). `program` is its path, `own`
    the word that is the same in every run with it (`state.places.own_word`)."""
    environment = {**profile.environment, **(profile.trust_environment if trust else {})}
    home = os.path.realpath(os.path.expanduser("~"))
    protected = protected_patterns()
    more = [one for one in profile.acts_on if not protected.match(one.rstrip("/"), True)]
    return {
        "filesystem": {"programs": [program] if program else [], **({"deny_write": more} if more else {})},
        "state": {
            "name": name,
            "keep": profile.keep,
            "per_project": profile.per_project,
            "project": profile.project_state,
        },
        "environment": {
            "set": {key: value.replace("~/", f"{home}/") for key, value in environment.items()},
            "allow": profile.pass_variables,
        },
        "network": {"preset": profile.network},
        "credentials": filled(profile.credentials, {"{own}": own}),
    }


def filled(value: Any, words: dict[str, str]) -> Any:
    """Plain data with words put in, also in the keys of mappings."""
    if isinstance(value, dict):
        return {filled(key, words): filled(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, words) for item in value]
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(word, text)
    return value


def about_itself(words: Sequence[str]) -> bool:
    """Whether the program is only asked for its version or help: that needs no flags and no login."""
    return len(words) == 2 and words[1] in ABOUT_ITSELF


def command(profile: Profile, words: Sequence[str], *, trust: bool) -> list[str]:
    """The command line: the profile's program with its flags, or `words` as they are when they start another program.
    Without any words, the profile's program alone."""
    program, *rest = words or [profile.program]
    if program != profile.program or about_itself(words):
        return list(words)
    return [program, *profile.flags, *(profile.trust_flags if trust else ()), *rest]


def find_program(profile: Profile, path: str) -> str:
    """Where the person's own program is. Raises SandboxError, with how to install it, when it is nowhere."""
    for directory in path.split(":"):
        file = os.path.join(directory, profile.program)
        if directory.startswith("/") and os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    if profile.install.startswith("npm install -g ") and os.geteuid() != 0:
        raise SandboxError(
            "{program} is not on your PATH; to install it: {how} (where you may not write to npm's own directory: add "
            "`--prefix ~/.local`, and put ~/.local/bin on your PATH)",
            program=profile.program,
            how=profile.install,
        )
    if profile.install:
        raise SandboxError(
            "{program} is not on your PATH; to install it: {how}", program=profile.program, how=profile.install
        )
    raise SandboxError("{program} is not on your PATH", program=profile.program)
