"""The signer's life: read the policy, unlock the key, open the two sockets, wait for the end."""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from sandbox.audit.record import Record
from sandbox.config.home import home, record_directory
from sandbox.config.model import Config
from sandbox.errors import ConfigError, NotFound, SandboxError
from sandbox.guards import signing_files
from sandbox.network.secrets.programs import environment
from sandbox.registry.kill_switch import state
from sandbox.registry.registry import find
from sandbox.registry.servers import serves
from sandbox.server.tokens import Tokens
from sandbox.signer import trusted_files
from sandbox.signing import paths
from sandbox.signing.backends.base import SignerBackend
from sandbox.signing.calls import abis_of, rules_of
from sandbox.signing.ledger import Ledger
from sandbox.signing.line_server import LineServer, asking, deciding
from sandbox.signing.service import SigningService


class Signer:
    """A running signer. Raises SandboxError when another one runs, or when the policy or the key cannot be used."""

    def __init__(self, config: Config, password: int | None = None) -> None:
        self._endings: list[Callable[[], object]] = []
        try:
            self._start(config, password)
        except BaseException:
            self.close()
            raise

    def _start(self, config: Config, password: int | None) -> None:
        signing = config.signing
        trusted_files.check(signing)
        rules = rules_of(signing)  # mistakes in it are reported before a password is asked for
        os.makedirs(paths.directory(), mode=0o700, exist_ok=True)
        self._endings.append(_alone().close)
        signing_files.note(signing)
        ledger = Ledger(paths.ledger())
        self._endings.append(ledger.close)
        record = Record(record_directory(config))
        self._endings.append(record.close)
        backend = backend_of(config, password)
        self._endings.append(backend.close)
        self.service = SigningService(rules, ledger, backend, record, stopped)
        self.address = self.service.address
        owner = new_secret()
        self._open(paths.approve_socket(), deciding(self.service, approver(owner)))
        self._open(paths.ask_socket(), asking(self.service, family_of, partial(serves, home())))

    def _open(self, path: str, handle: Any) -> None:
        server = LineServer(paths.listen(path), handle)
        self._endings.append(server.close)

    def close(self) -> None:
        """Idempotent."""
        while self._endings:
            self._endings.pop()()


def backend_of(config: Config, password: int | None) -> SignerBackend:
    """What signs. Raises SandboxError."""
    signing = config.signing
    if signing.backend == "keystore":
        from sandbox.signer.walled_key import walled_key

        return walled_key(signing, abis_of(signing), password)[0]
    if signing.backend == "command":
        from sandbox.signing.backends.command import CommandSigner

        if not signing.command or signing.address is None:
            raise ConfigError("the backend command needs signing.command and signing.address", path="signing.backend")
        words = [trusted_files.program(signing), *signing.command[1:]]
        return CommandSigner(words, signing.address, partial(trusted_files.check, signing), environment())
    from sandbox.signing.backends.web3signer import Web3Signer

    if signing.url is None or not signing.url.startswith(("http://", "https://")):
        raise ConfigError("the backend web3signer needs an http or https address", path="signing.url")
    return Web3Signer(signing.url, signing.address)


def _alone() -> Any:
    """Takes a lock: two signers of one home would take each other's sockets. Raises SandboxError."""
    lock = open(os.path.join(paths.directory(), "lock"), "a")  # noqa: SIM115 - held until the end
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise SandboxError("another signer runs already") from None
    return lock


def new_secret() -> str:
    """The owner's credential, for the command line: new with each signer, readable by this user alone."""
    secret = secrets.token_hex(32)
    path = paths.approver_secret()
    new = f"{path}.new"
    with open(
        os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="ascii"
    ) as file:
        file.write(secret)
    os.replace(new, path)
    return secret


def approver(owner: str) -> Callable[[dict[str, Any]], str | None]:
    """Who a credential belongs to: the owner's secret, or a token of the HTTP server that may approve and not ask."""
    tokens = Tokens()

    def named(credential: dict[str, Any]) -> str | None:
        secret, token = credential.get("secret"), credential.get("token")
        if isinstance(secret, str) and hmac.compare_digest(secret.encode(), owner.encode()):
            return "owner"
        access = tokens.check(token) if isinstance(token, str) else None
        return f"token:{access.token}" if access is not None and access.may("approve") else None

    return named


def family_of(sandbox: str, pid: int) -> str | None:
    """What a sandbox's limits are counted for; None unless that process made it: a gate asks only for its own."""
    try:
        entry = find(home(), sandbox)
    except NotFound:
        return None
    return entry.family if entry.id == sandbox and entry.running and entry.pid == pid else None


def stopped() -> str | None:
    """Why nothing is signed at all."""
    return None if state(home()) is None else "the kill switch is pulled"
