"""Where secret values come from: the owner's configuration, environment, files or programs. Read on the host,
once at the start and again when the configuration changes. Light to import."""

from __future__ import annotations

from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.model import Secret

MAX_VALUE = 64 * 1024
COMMAND_TIMEOUT = 30
PLACES = ("header", "query", "body")


def resolve(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """The value of every secret. Raises ConfigError that says which one failed and why, never what it
    holds."""
    return {name: _value(secret, f"network.secrets.{name}") for name, secret in secrets.items()}


def _value(secret: Secret, path: str) -> str:
    sources = (secret.value, secret.from_env, secret.from_file, secret.from_command)
    if sum(source is not None for source in sources) != 1:
        raise ConfigError("needs exactly one of value, from_env, from_file, from_command", path=path)
    if not secret.hosts:
        raise ConfigError("names no host it may be sent to: add `hosts`", path=path)
    for place in secret.places:
        if place not in PLACES:
            raise ConfigError(f"must be one of {', '.join(PLACES)}, not {place!r}", path=f"{path}.in")
    if secret.value is not None:
        value = secret.value
    elif secret.from_env is not None:
        value = _from_env(secret.from_env, f"{path}.from_env")
    elif secret.from_file is not None:
        value = _from_file(secret.from_file, f"{path}.from_file")
    else:
        value = _from_command(secret.from_command or [], f"{path}.from_command")
    if not value:
        raise ConfigError("is empty", path=path)
    if len(value) > MAX_VALUE or any(letter in value for letter in "\r\n\0"):
        raise ConfigError("must be a single line without control characters: it goes into a header", path=path)
    return value


def _from_env(name: str, path: str) -> str:
    import os

    value = os.environ.get(name)
    if value is None:
        raise ConfigError(f"the environment has no variable {name!r}", path=path)
    return value


def _from_file(name: str, path: str) -> str:
    import os

    try:
        with open(os.path.expanduser(name), "rb") as file:
            data = file.read(MAX_VALUE + 2)
    except OSError as problem:
        raise ConfigError(f"cannot read {name!r}: {problem.strerror}", path=path) from None
    return _text(data, path)


def _from_command(command: list[str], path: str) -> str:
    import subprocess

    if not command:
        raise ConfigError("is an empty command", path=path)
    try:
        # Its standard error goes to the owner's terminal: it may ask for a password there, and we never keep
        # it.
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT, check=False
        )
    except OSError as problem:
        raise ConfigError(f"cannot run {command[0]!r}: {problem.strerror}", path=path) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{command[0]!r} did not finish in {COMMAND_TIMEOUT} s", path=path) from None
    if done.returncode:
        raise ConfigError(f"{command[0]!r} failed with status {done.returncode}", path=path)
    return _text(done.stdout, path)


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError("is not text", path=path) from None
