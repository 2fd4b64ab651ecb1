"""Where secret values come from: the owner's configuration, environment, files, programs or keyring.

They are read on the host, at the start and again when the configuration changes. A file is also read again when it has
changed, and a program is run again before its output expires. No input from a tenant is used. Light to import.
"""

from __future__ import annotations

from sandbox.errors import ConfigError, Message
from sandbox.network.secrets.missing_value import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.model import Secret

MAX_VALUE = 16 * 1024
SHORTEST = 8  # characters; shorter values occur by chance and would be replaced everywhere
COMMAND_TIMEOUT = 30
PLACES = ("header", "query", "body")
SOURCES = ("value", "from_env", "from_file", "from_command", "from_keyring")


def resolve(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """The value of every secret. Raises ConfigError that says which one failed and why, never its value."""
    found = {}
    for name, secret in secrets.items():
        check(secret, f"network.secrets.{name}")
        found[name], _ = read(secret, f"network.secrets.{name}")
    return found


def check(secret: Secret, path: str) -> None:
    """Raises ConfigError for a mistake that does not depend on what the source contains."""
    if sum(getattr(secret, source) is not None for source in SOURCES) != 1:
        raise ConfigError("needs exactly one of {sources}", sources=", ".join(SOURCES), path=path)
    if not secret.hosts:
        raise ConfigError("does not say which hosts it may be sent to: add `hosts`", path=path)
    for place in secret.places:
        if place not in PLACES:
            raise ConfigError("must be one of {places}", places=", ".join(PLACES), path=f"{path}.in")
    _refuse_values_as_names(secret, path)
    if secret.from_command is not None and not secret.from_command:
        raise ConfigError("is an empty command", path=f"{path}.from_command")
    if secret.from_keyring is not None and len(secret.from_keyring) != 2:
        raise ConfigError("must be a service and a user name", path=f"{path}.from_keyring")
    if secret.json_field is not None and secret.from_file is None and secret.from_command is None:
        raise ConfigError("can be used only with from_file and from_command", path=f"{path}.field")
    for key in ("ttl", "expires"):
        if getattr(secret, key) is not None and secret.from_command is None:
            raise ConfigError("can be used only with from_command", path=f"{path}.{key}")


def _refuse_values_as_names(secret: Secret, path: str) -> None:
    """Raises ConfigError for the value itself where the name of its source belongs: names are shown and kept."""
    from sandbox.config.variables import secret_value

    if secret.from_env is not None and (not secret.from_env.isidentifier() or secret_value(secret.from_env)):
        raise ConfigError("must be the name of a variable, not the value", path=f"{path}.from_env")
    if secret.from_file is not None and secret_value(secret.from_file):
        raise ConfigError("must be the name of a file, not the value", path=f"{path}.from_file")
    if secret.from_command and secret_value(secret.from_command[0]):
        raise ConfigError("must be a program, not the value", path=f"{path}.from_command")


def read(secret: Secret, path: str) -> tuple[str, float | None]:
    """The current value, and when it expires if that is known. Raises Missing, or ConfigError for an unusable value."""
    end = None
    if secret.value is not None:
        value = secret.value
    elif secret.from_env is not None:
        value = _from_env(secret.from_env, f"{path}.from_env")
    elif secret.from_file is not None:
        value = _from_file(secret.from_file, f"{path}.from_file", whole=secret.json_field is not None)
    elif secret.from_keyring is not None:
        value = _from_keyring(secret.from_keyring, f"{path}.from_keyring")
    else:
        value = _from_command(secret.from_command or [], f"{path}.from_command")
    if secret.json_field is not None or secret.expires is not None:
        from sandbox.network.secrets.json_fields import picked

        value, end = picked(value, secret, path)
    if secret.ttl is not None:
        import time

        end = min(end or float("inf"), time.time() + secret.ttl)
    if not value and secret.value is None:
        raise Missing("is empty", path=path)
    problem = unusable(value)
    if problem is not None:
        raise ConfigError(problem, path=path)
    return value, end


def unusable(value: str) -> str | None:
    """Why a value is invalid, without showing it; None when it is valid. A valid value fits into a header and is
    read from it unchanged."""
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
        raise Missing("the environment has no variable{name}", name=_shown(name), path=path)
    return value


def _from_file(name: str, path: str, *, whole: bool = False) -> str:
    import os

    from sandbox.guards.planted_links import planted_link

    most = 2**20 if whole else MAX_VALUE + 2
    if planted_link(name) is not None:
        raise Missing(
            "will not read{name} through a link that a sandbox may have made; name the file itself",
            name=_shown(name, path=True),
            path=path,
        )
    try:
        with open(os.path.expanduser(name), "rb") as file:
            data = file.read(most)
    except OSError as problem:
        raise Missing(
            "cannot read{name}: {reason}",
            name=_shown(name, path=True),
            reason=problem.strerror,
            path=path,
        ) from None
    return _text(data, path)


def _from_command(command: list[str], path: str) -> str:
    import os
    import subprocess

    from sandbox.network.secrets.programs import environment, of_tenants

    home = os.path.expanduser("~")
    theirs = of_tenants(command, home)
    if theirs is not None:
        raise Missing(
            "will not run a program with{name}, which is where sandboxes write: move it to another directory",
            name=_shown(theirs, path=True),
            path=path,
        )
    try:
        # Its standard error is the owner's terminal, where it may ask for a password; we never keep that output.
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT,
            check=False,
            env=environment(),
            cwd=home,  # not the project, where tenants can write: `python -m x`
        )
    except OSError as problem:
        raise Missing(
            "cannot run{name}: {reason}",
            name=_shown(command[0], path=True),
            reason=problem.strerror,
            path=path,
        ) from None
    except subprocess.TimeoutExpired:
        raise Missing("the program did not finish in {seconds} s", seconds=COMMAND_TIMEOUT, path=path) from None
    if done.returncode:
        raise Missing("the program failed with status {status}", status=done.returncode, path=path)
    return _text(done.stdout, path)


def _from_keyring(where: list[str], path: str) -> str:
    try:
        import keyring
    except ImportError:
        raise ConfigError("needs the package `keyring`: pip install 'agent-sandbox[keyring]'", path=path) from None
    try:
        value = keyring.get_password(*where)
    except Exception as problem:  # noqa: BLE001 - each system's keyring has errors of its own
        raise Missing("the keyring failed: {error}", error=type(problem).__name__, path=path) from None
    if value is None:
        raise Missing("the keyring has no such entry", path=path)
    return str(value)


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError("is not text", path=path) from None
