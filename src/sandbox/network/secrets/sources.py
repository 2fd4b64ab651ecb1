"""Where secret values come from: the owner's configuration, environment, files or programs.

They are read on the host, at the start and again when the configuration changes. Light to import.
"""

from __future__ import annotations

from sandbox.errors import ConfigError, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.model import Secret

MAX_VALUE = 16 * 1024
SHORTEST = 8  # shorter ones occur by chance, and would be replaced everywhere
COMMAND_TIMEOUT = 30
PLACES = ("header", "query", "body")


def resolve(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """The value of every secret. Raises ConfigError that says which one failed and why, never its value."""
    return {name: _value(secret, f"network.secrets.{name}") for name, secret in secrets.items()}


def _value(secret: Secret, path: str) -> str:
    sources = (secret.value, secret.from_env, secret.from_file, secret.from_command)
    if sum(source is not None for source in sources) != 1:
        raise ConfigError("needs exactly one of value, from_env, from_file, from_command", path=path)
    if not secret.hosts:
        raise ConfigError("does not say which hosts it may be sent to: add `hosts`", path=path)
    for place in secret.places:
        if place not in PLACES:
            raise ConfigError("must be one of {places}", places=", ".join(PLACES), path=f"{path}.in")
    if secret.value is not None:
        value = secret.value
    elif secret.from_env is not None:
        value = _from_env(secret.from_env, f"{path}.from_env")
    elif secret.from_file is not None:
        value = _from_file(secret.from_file, f"{path}.from_file")
    else:
        value = _from_command(secret.from_command or [], f"{path}.from_command")
    problem = unusable(value)
    if problem is not None:
        raise ConfigError(problem, path=path)
    return value


def unusable(value: str) -> str | None:
    """Why a value is invalid, without showing it; None when it is valid. A valid value fits into a header, and is read
    from one unchanged."""
    if not value:
        return Message("is empty")
    if len(value) > MAX_VALUE:
        return Message("is longer than {longest} characters", longest=MAX_VALUE)
    if not all(" " <= letter <= "~" for letter in value):
        return Message("must be a single line of printable ASCII characters, because it goes into a header")
    if value.strip() != value:
        return Message("begins or ends with a space, which would be lost in a header")
    if len(value) < SHORTEST:
        return Message(
            "is too short, so it would match ordinary text: use at least {shortest} characters", shortest=SHORTEST
        )
    return None


def _shown(name: str, *, path: bool = False) -> str:
    """The name of a variable, file or program as it was written; nothing when it could be the value itself."""
    from sandbox.config.variables import secret_value

    looks_right = name.startswith(("/", "~", "./", "../")) if path else name.isidentifier() and name.isupper()
    return f" {name!r}" if looks_right and not secret_value(name) else " …"


def _from_env(name: str, path: str) -> str:
    import os

    value = os.environ.get(name)
    if value is None:
        raise ConfigError("the environment has no variable{name}", name=_shown(name), path=path)
    return value


def _from_file(name: str, path: str) -> str:
    import os

    try:
        with open(os.path.expanduser(name), "rb") as file:
            data = file.read(MAX_VALUE + 2)
    except OSError as problem:
        raise ConfigError(
            "cannot read{name}: {reason}",
            name=_shown(name, path=True),
            reason=problem.strerror,
            path=path,
        ) from None
    return _text(data, path)


def _from_command(command: list[str], path: str) -> str:
    import subprocess

    if not command:
        raise ConfigError("is an empty command", path=path)
    try:
        # Its standard error is the owner's terminal: it may ask for a password there, and we never keep it.
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT, check=False
        )
    except OSError as problem:
        raise ConfigError(
            "cannot run{name}: {reason}",
            name=_shown(command[0], path=True),
            reason=problem.strerror,
            path=path,
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError("the program did not finish in {seconds} s", seconds=COMMAND_TIMEOUT, path=path) from None
    if done.returncode:
        raise ConfigError("the program failed with status {status}", status=done.returncode, path=path)
    return _text(done.stdout, path)


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError("is not text", path=path) from None
