"""`sandbox sign`: runs the signer, and decides requests that wait for a person. See docs/signing.md."""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import print_json, shown, table
from sandbox.errors import InvalidArgument, NotFound, SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any


def add(parser: ArgumentParser) -> None:
    option = parser.add_argument
    option(
        "action",
        nargs="+",
        metavar="serve|pending|approve ID|reject ID|address|new [FILE]",
        help=_("run the signer; show, approve or reject what waits; show the account; make a key"),
    )
    option("--password-fd", type=int, metavar="N", help=_("serve, new: read the password from this descriptor"))
    option("--hash", metavar="HASH", help=_("approve, reject: only if it is this request"))
    option("--yes", action="store_true", help=_("approve: do not ask again; new: in a repository, too"))
    option("--config", metavar="FILE", help=_("read this configuration file"))
    option("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    match arguments.action:
        case ["serve"]:
            return _serve(arguments)
        case ["pending"]:
            return _pending(arguments.json)
        case ["approve", id]:
            return _approve(id, arguments)
        case ["reject", id]:
            return _told(_decide("reject", id, arguments.hash), arguments.json)
        case ["address"]:
            from sandbox.signing.client import ask

            print(ask({"op": "address"})["address"])
            return 0
        case ["new"]:
            from sandbox.signing import paths

            os.makedirs(paths.directory(), mode=0o700, exist_ok=True)
            return _new(os.path.join(paths.directory(), "key.json"), arguments.password_fd)
        case ["new", file]:
            if not arguments.yes:
                _refuse_shared(os.path.abspath(os.path.expanduser(file)))
            return _new(os.path.expanduser(file), arguments.password_fd)
    raise InvalidArgument("sandbox sign serve, pending, approve ID, reject ID, address or new [FILE]")


def _serve(arguments: Namespace) -> int:
    """Runs until SIGINT or SIGTERM. The policy is the user's own: no project's file counts."""
    import signal

    from sandbox.config.home import home
    from sandbox.config.layers import resolve
    from sandbox.signer.run import Signer

    config = resolve({}, project=home(), config_file=arguments.config).users
    signer = Signer(config, arguments.password_fd)
    try:
        waits = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, waits)
        print(_("signing for {address}").format(address=signer.address), flush=True)
        signal.sigwait(waits)
    finally:
        signer.close()
    return 0


def _pending(as_json: bool) -> int:
    found = _waiting()
    if as_json:
        print_json(found)
    elif found:
        rows = ((one["requestId"], one["sandbox"], one["hash"][:18], summary(one)) for one in found)
        print(table(rows, ("ID", "SANDBOX", "HASH", "REQUEST")))
    return 0


def _waiting() -> list[dict[str, Any]]:
    from sandbox.signing.client import decide

    return list(decide({"op": "pending"})["pending"])


def summary(one: dict[str, Any]) -> str:
    """One line about a request. Parts of it come from inside."""
    about = one["shown"]
    if about["what"] == "transaction":
        call = about.get("call", {})
        called = f" {call.get('function', call.get('data', ''))[:80]}" if call else ""
        return f"{about['ether']} ETH -> {about['to']}{called} (chain {about['chainId']}, at most {about['most']} ETH)"
    if about["what"] == "typed data":
        return f"{about['type']} for {about['domain']['verifyingContract']} (chain {about['domain']['chainId']})"
    return repr(about["text"] if about["text"] is not None else about["bytes"])[:120]


def _approve(id: str, arguments: Namespace) -> int:
    """Approves a request, and exactly that: shows it and asks first, unless --yes or --hash says that it was seen."""
    if not (arguments.yes or arguments.hash is not None or sys.stdin.isatty()):
        raise InvalidArgument("without a terminal, approve needs --hash HASH (from `sandbox sign pending`) or --yes")
    one = next((each for each in _waiting() if each["requestId"] == id), None)
    if one is None:
        raise NotFound("no request {id!r} is waiting: it was decided, or it timed out", id=id)
    if arguments.hash is not None and arguments.hash != one["hash"]:
        raise SandboxError("the hash is not that of the request")
    if not arguments.yes and sys.stdin.isatty():
        import json

        print(shown(json.dumps(one["shown"], indent=2, ensure_ascii=True), keep="\n"))
        print(_("sandbox {sandbox}, hash {hash}").format(sandbox=shown(one["sandbox"]), hash=one["hash"]))
        if input(_("approve this? type yes: ")).strip() != "yes":
            return 1
    return _told(_decide("approve", id, one["hash"]), arguments.json)


def _decide(what: str, id: str, hash: str | None) -> dict[str, Any]:
    from sandbox.signing.client import decide, owner

    told = {"op": what, "id": id, "credential": owner()}
    return decide({**told, "hash": hash} if hash is not None else told)


def _told(result: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(result)
    else:
        words = _("signed: {hash}") if result["success"] else _("not signed: {reason}")
        print(words.format(hash=result["hash"], reason=shown(str(result["policyDecision"]["reason"]))))
    rejected = result["policyDecision"]["reason"] == "rejected by a person"
    return 0 if result["success"] or rejected else 1


def _refuse_shared(file: str) -> None:
    """A key does not belong in a project: it would be committed, and sandboxes would see it. Raises SandboxError."""
    from sandbox.signer.trusted_files import is_tenants

    above = os.path.realpath(os.path.dirname(file))
    if is_tenants(file):
        raise SandboxError("sandboxes write to {place}; without FILE, the key goes where none does", place=above)
    while above != "/":
        if os.path.lexists(os.path.join(above, ".git")):
            raise SandboxError(
                "{place} is a git repository; without FILE, the key goes to ~/.sandbox/signing (--yes: here)",
                place=above,
            )
        above = os.path.dirname(above)


def _new(file: str, descriptor: int | None) -> int:
    """Makes a key, encrypted with a password, in a new file."""
    import json

    from sandbox.signer.hand_over import password
    from sandbox.signing.backends.ethereum import library

    account = library().Account
    made = account.create()
    word = password(descriptor)
    if descriptor is None and password(None) != word:
        raise SandboxError("the two passwords differ")
    if not word:
        raise SandboxError("the password is empty")
    keystore = account.encrypt(made.key, word)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(json.dumps(keystore))
    print(made.address)
    return 0
