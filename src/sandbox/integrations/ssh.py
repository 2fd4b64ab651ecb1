"""`ssh`, `scp`, `rsync` and editors reach a sandbox without a port: OpenSSH's server runs inside, for one connection.

The client's ProxyCommand starts it in the sandbox and moves the bytes. What keeps others out is that only the owner can
attach; the key merely satisfies the protocol. The server is a tenant: a hostile one can say anything to the client, so
the client's settings forward neither the agent nor a display to it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

from sandbox.config.home import home
from sandbox.errors import SandboxError
from sandbox.network.secrets.programs import environment

if TYPE_CHECKING:
    from sandbox.client import Client

SERVER = "/usr/sbin/sshd"
PATIENCE = 60.0  # seconds for a program inside, which a hostile tenant can replace by one that never ends
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
SETTINGS = """\
HostKey {place}/host_key
AuthorizedKeysFile {place}/authorized_keys
AllowUsers {user}
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
X11Forwarding no
PidFile none
LogLevel ERROR
PrintMotd no
Subsystem sftp internal-sftp
"""
CLIENT = """\
Host {name}
    HostName {id}
    User {user}
    ProxyCommand {proxy}
    IdentityFile {key}
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    UpdateHostKeys no
    GlobalKnownHostsFile /dev/null
    LogLevel ERROR
    PreferredAuthentications publickey
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    GSSAPIAuthentication no
    HostbasedAuthentication no
    IdentityAgent none
    AddKeysToAgent no
    ForwardAgent no
    ForwardX11 no
    ForwardX11Trusted no
    Tunnel no
    PermitLocalCommand no
"""


def client_settings(client: Client, program: list[str]) -> str:
    """A sandbox's entry for `~/.ssh/config`; `program` is the command that starts this `sandbox`.

    Makes the owner's key the first time. Raises SandboxError.
    """
    words = [*program, "ssh-proxy", client.id]
    # ssh expands % sequences, then passes the line to a shell.
    proxy = " ".join(shlex.quote(word).replace("%", "%%") for word in words)
    return CLIENT.format(
        name=f"sandbox-{client.id}", id=client.id, user=_user(client), proxy=proxy, key=_quoted(_key())
    )


def start_server(client: Client) -> tuple[list[str], str]:
    """Puts the server's files inside. Returns its command and the directory to remove later. Raises SandboxError."""
    if not client.exists(SERVER):
        raise SandboxError("there is no {server} in this sandbox: install openssh-server there", server=SERVER)
    place = f"/tmp/.sandbox-ssh-{os.urandom(8).hex()}"
    client.mkdir(place, 0o700)
    _run(client, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{place}/host_key"])
    with open(f"{_key()}.pub", encoding="utf-8") as file:
        client.write_text(f"{place}/authorized_keys", file.read(), mode=0o600)
    settings = SETTINGS.format(place=place, user=_user(client)) + _variables(client)
    client.write_text(f"{place}/settings", settings, mode=0o600)
    return [SERVER, "-i", "-e", "-f", f"{place}/settings"], place


def _variables(client: Client) -> str:
    """The sandbox's environment: sshd starts with an empty one, and tools would not trust the gate's certificates."""
    found = _run(client, ["env", "-0"]).split("\0")
    pairs = [one for one in found if "=" in one and not set(one) & set('"\\\n\r')]
    return "SetEnv " + " ".join(f'"{pair}"' for pair in pairs) + "\n" if pairs else ""


def _user(client: Client) -> str:
    name = _run(client, ["id", "-un"]).strip()
    if not USER.fullmatch(name):
        raise SandboxError("the user inside has no name that ssh could use")
    return name


def _run(client: Client, command: list[str]) -> str:
    """What a program inside prints. Raises SandboxError, also when it does not end."""
    return client.exec(command, timeout=PATIENCE, check=True).stdout


def _key() -> str:
    """The owner's key for all sandboxes: its private half never leaves the host."""
    path = os.path.join(home(), "ssh", "key")
    if not os.path.exists(f"{path}.pub"):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "sandbox", "-f", path]
            # `environment`: not a program that a tenant left in a directory of the owner's PATH.
            subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=environment())
        except FileNotFoundError as problem:
            raise SandboxError("ssh-keygen is not installed: install openssh-client") from problem
        except subprocess.CalledProcessError as problem:
            raise SandboxError(
                "ssh-keygen failed: {said}", said=problem.stderr.decode(errors="replace").strip()
            ) from problem
    return path


def _quoted(path: str) -> str:
    return f'"{path}"'.replace("%", "%%")
