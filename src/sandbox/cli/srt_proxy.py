"""`srt proxy`: the gate alone, for a workload that runs elsewhere (a virtual machine, a container). An external decider
on an inherited descriptor decides about every request; see `network/decider/`."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

from sandbox.cli.output import shown
from sandbox.errors import Message, SandboxError
from sandbox.network.decider.connection import DeciderConnection, Unavailable
from sandbox.policy.addresses import is_loopback_host
from sandbox.policy.decision import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.network.destination import Destination
    from sandbox.network.gate.gate import Gate
    from sandbox.network.tls.ca import Authority

_USAGE_ERROR, _NOT_STARTED = 2, 1
_GRACE = 1.0  # seconds that requests have when the proxy ends
_MOST_PEM = 2**20


class _Stop(Exception):
    """The caller made a mistake."""


def main(words: Sequence[str]) -> int:
    """Runs until the decider or the lifeline ends, or SIGTERM. Returns the exit status."""
    if "--version" in words:
        from sandbox import __version__

        print(f"srt-proxy {__version__}")
        return 0
    try:
        options = _parser().parse_args(words)
        listener = _listener(options)
        authority = _authority(options.ca_fd)
    except _Stop as problem:
        _say(str(problem))
        return _USAGE_ERROR
    return asyncio.run(Proxy(options, listener, authority).run())


def _say(text: str) -> None:
    print(f"srt proxy: {shown(text)}", file=sys.stderr, flush=True)


# -- the command line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Stop(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="srt proxy", description="Run the gate alone; a decider on inherited descriptors decides every request."
    )
    add = parser.add_argument
    add("--listen-fd", type=_descriptor, metavar="FD", help="accept connections on this inherited listening socket")
    add("--listen", metavar="HOST:PORT", help="listen on this loopback address instead")
    add("--listen-any-interface", action="store_true", help="let --listen take an address that others can reach")
    add("--decider-fd", type=_descriptor, metavar="FD", help="the decider's stream, in both directions (a socket)")
    add("--decider-in", type=_descriptor, metavar="FD", help="what the decider says (with --decider-out)")
    add("--decider-out", type=_descriptor, metavar="FD", help="what it is told (with --decider-in)")
    add("--lifeline-fd", type=_descriptor, metavar="FD", help="end when this stream ends")
    add(
        "--ca-fd", type=_descriptor, metavar="FD", help="read the authority (key and certificate, PEM) from this stream"
    )
    add("--strip-response-header", nargs="+", default=[], metavar="NAME", help="fields never passed back")
    add("--plaintext-header-set", action="store_true", help="verdicts may set headers of unencrypted requests")
    add("-d", "--debug", action="store_true", default=bool(os.environ.get("SRT_DEBUG")), help="show every decision")
    add("--version", action="store_true", help="print the version")
    return parser


def _descriptor(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"not a descriptor: {text!r}")
    return int(text)


def _listener(options: argparse.Namespace) -> socket.socket:
    if options.decider_fd is None and (options.decider_in is None or options.decider_out is None):
        raise _Stop("a decider is required (--decider-fd, or --decider-in and --decider-out)")
    if options.listen_fd is not None:
        try:
            found = socket.socket(fileno=os.dup(options.listen_fd))
            if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                raise OSError(0, "not a listening socket")
            return found
        except OSError as problem:
            raise _Stop(f"--listen-fd {options.listen_fd}: {problem.strerror}") from None
    if options.listen is None:
        raise _Stop("--listen-fd (or --listen for development) is required")
    host, _, port = options.listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535 or ":" not in options.listen:
        raise _Stop(f"--listen needs <host:port> with a port from 0 to 65535 (got {options.listen!r})")
    if not is_loopback_host(host):
        if not options.listen_any_interface:
            raise _Stop(
                f"--listen {options.listen!r} is not a loopback address (127.0.0.0/8, [::1] or localhost); pass "
                "--listen-any-interface to bind it anyway"
            )
        _say(f"warning: the listener on {options.listen} is reachable from other hosts, and asks for no password")
    try:
        return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as problem:
        raise _Stop(f"--listen {options.listen!r}: {problem.strerror or problem}") from None


def _authority(descriptor: int | None) -> Authority | None:
    if descriptor is None:
        return None
    from sandbox.network.tls.ca import Authority
    from sandbox.network.tls.trust import certificates_in

    try:
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(_MOST_PEM)
    except OSError as problem:
        raise _Stop(f"--ca-fd {descriptor}: {problem.strerror}") from None
    key = re.search(
        rb"-----BEGIN (?:RSA |EC )?PRIVATE KEY-----.+?-----END (?:RSA |EC )?PRIVATE KEY-----", text, re.DOTALL
    )
    certificates = certificates_in(text)
    if key is None or not certificates:
        raise _Stop("proxy-only: the CA PEM needs a private key and a certificate")
    try:
        return Authority.from_pem(key.group(), certificates)
    except (ValueError, TypeError) as problem:
        raise _Stop(f"--ca-fd {descriptor}: {problem}") from None


# -- the proxy


class Proxy:
    """Serves `listener` until it is stopped."""

    def __init__(self, options: argparse.Namespace, listener: socket.socket, authority: Authority | None) -> None:
        self._options = options
        self._listener = listener
        self._authority = authority
        self._ended: asyncio.Future[str] | None = None

    async def run(self) -> int:
        """Returns the exit status."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, self._end, "SIGTERM")
        link = DeciderConnection(lambda why: self._end(f"decider: {why}"))
        try:
            await self._connect(link)
            allowed, denied = await link.greeted
            stop, stopper = socket.socketpair()
            gate = asyncio.ensure_future(self._gate(link, allowed, denied, stop))
        except (OSError, SandboxError, Unavailable) as problem:
            _say(f"stopped (start failed: {problem})")
            return _USAGE_ERROR
        with stop, stopper:
            _say(f"serving {self._place()}")
            gate.add_done_callback(self._gate_ended)
            why = await self._ended
            self._listener.close()
            await asyncio.sleep(0)  # for requests that are refused because of it
            stopper.send(b"x")
            try:
                async with asyncio.timeout(_GRACE):
                    await gate
            except (TimeoutError, SandboxError, OSError):
                pass
        link.end("closed")
        _say(f"stopped ({why})")
        return _NOT_STARTED if why.startswith("start failed") else 0

    def _end(self, why: str) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(why)

    def _gate_ended(self, gate: asyncio.Future[None]) -> None:
        problem = None if gate.cancelled() else gate.exception()
        self._end(f"start failed: {problem}" if problem is not None else "closed")

    def _place(self) -> str:
        if self._options.listen_fd is not None:
            return f"fd {self._options.listen_fd}"
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    async def _connect(self, link: DeciderConnection) -> None:
        options = self._options
        if options.decider_fd is not None:
            reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=os.dup(options.decider_fd)))
        else:
            reader = await _reader(options.decider_in)
            writer = await _writer(options.decider_out)
        if options.lifeline_fd is not None:
            lifeline = await _reader(options.lifeline_fd)
            self._watching = asyncio.create_task(self._watch(lifeline))
        link.start(reader, writer)

    async def _watch(self, lifeline: asyncio.StreamReader) -> None:
        try:
            while await lifeline.read(4096):
                pass
            self._end("lifeline closed")
        except OSError:
            self._end("lifeline error")

    async def _gate(self, link: DeciderConnection, allowed: list[str], denied: list[str], stop: socket.socket) -> None:
        from sandbox.config.model import Network
        from sandbox.network.decider.decider import Decider
        from sandbox.network.gate.gate import Gate
        from sandbox.network.gate_thread import GateThread

        network = Network.read(
            {
                "allowed_hosts": allowed,
                "denied_hosts": denied,
                "allow_git": False,
                "intercept": True,
                "strip_response_headers": self._options.strip_response_header,
            }
        )
        setup = GateThread(
            {},
            network,
            sandbox_id="srt-proxy",
            emit=self._show if self._options.debug else lambda event: None,
            record=lambda *_, **__: None,
            dial=_nothing_inside,
            hooks=Decider(link, plaintext=self._options.plaintext_header_set),
            given_authority=self._authority,
        )
        setup.listening = {"proxy": self._listener}
        self._listener.setblocking(False)
        await (Gate if self._authority is not None else _without_tls())(setup).run(stop)

    def _show(self, event: dict[str, object]) -> None:
        print(f"[SandboxDebug] {event.get('network', event)!a}", file=sys.stderr, flush=True)


def _without_tls() -> type[Gate]:
    """A gate that cannot look into TLS, so that it refuses every tunnel."""
    from sandbox.network.gate.gate import Gate
    from sandbox.network.gate.refusal import ClientStyle, HttpProxyStyle

    class WithoutTls(Gate):
        async def connect(
            self, client: socket.socket, destination: Destination, style: ClientStyle | None = None
        ) -> None:
            if isinstance(style, HttpProxyStyle):
                reason = Message("{destination}: tunnels cannot be inspected without --ca-fd", destination=destination)
                return await self.deny(client, destination, Decision(False, "network.intercept", reason), style)
            await super().connect(client, destination, style)

    return WithoutTls


def _nothing_inside(address: str, port: int) -> socket.socket:
    raise OSError("srt proxy has no sandbox")


async def _reader(descriptor: int) -> asyncio.StreamReader:
    """A pipe or a socket that somebody else handed over."""
    reader = asyncio.StreamReader()
    file = os.fdopen(os.dup(descriptor), "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    file = os.fdopen(os.dup(descriptor), "wb", buffering=0)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, file)
    return asyncio.StreamWriter(transport, protocol, None, loop)
