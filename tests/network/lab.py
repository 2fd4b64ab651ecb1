"""A real TLS origin and a gate on the loopback, for tests of interception without walls around them."""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import h2.config
import h2.connection
import h2.events
import h11
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandbox.config.credential_entries import complete
from sandbox.config.model import Config, Network
from sandbox.errors import Denied
from sandbox.network.credentials.logins import Logins
from sandbox.network.destination import Destination
from sandbox.network.intercept.interception import Interception
from sandbox.policy.decision import Decision
from sandbox.policy.network import NetworkPolicy

T = TypeVar("T")

PLACEHOLDER = "SANDBOX_PLACEHOLDER_0123456789abcdef0123456789abcdef"
VALUE = "sk-live-9f8e7d6c5b4a-the/real+one"


class LoopThread:
    """An event loop in a thread of its own; `run` waits for a coroutine in it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Awaitable[T], timeout: float = 60) -> T:
        async def waited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(waited(), self.loop).result(timeout)

    def close(self) -> None:
        async def cancel_all() -> None:
            tasks = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Pki:
    """An authority of the tests' own, and certificates by it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test origin authority")])
        self._certificate = self._build(name, name, self._key.public_key(), ca=True)
        self.file = str(directory / "origin-ca.pem")
        Path(self.file).write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def _build(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        ca: bool,
        names: tuple[str, ...] = (),
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )
        if ca:
            usage = dict.fromkeys(
                ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
            )
            usage |= dict.fromkeys(("encipher_only", "decipher_only"), False)
            builder = builder.add_extension(
                x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage),
                critical=True,
            )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())

    def server_context(self, names: list[str], protocols: list[str]) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = self._build(subject, self._certificate.subject, key.public_key(), ca=False, names=tuple(names))
        pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._directory / f"{names[0].replace('*', '_')}.pem"
        file.write_bytes(pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        context.set_alpn_protocols(protocols)
        return context


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Origin:
    """A server that answers every request with what it got, as JSON, and remembers it.

    `answer` may be replaced: it gets method, target, headers and body, and returns status, headers and body.
    `raw` replaces everything: it gets the connection.
    """

    def __init__(self, thread: LoopThread, context: ssl.SSLContext | None) -> None:
        self._thread = thread
        self.seen: list[dict[str, Any]] = []
        self.connections = 0
        self.bytes_received = 0
        self.raw: Handler | None = None
        self.speaks_http2 = False  # without TLS, where nothing is agreed on
        self.answer: Callable[[str, str, list[tuple[str, str]], bytes], Any] = self._echo
        self._server = thread.run(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._server.close)

    def _echo(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        text = {"method": method, "target": target, "headers": headers, "body": body.decode("latin-1")}
        return 200, [("Content-Type", "application/json")], json.dumps(text).encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        tls = writer.get_extra_info("ssl_object")
        try:
            if self.raw is not None:
                await self.raw(reader, writer)
            elif self.speaks_http2 or (tls is not None and tls.selected_alpn_protocol() == "h2"):
                await self._http2(reader, writer)
            else:
                await self._http1(reader, writer)
        except (ConnectionError, h11.RemoteProtocolError):
            pass
        finally:
            writer.close()

    def _remember(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        self.seen.append({"method": method, "target": target, "headers": headers, "body": body})
        return self.answer(method, target, headers, body)

    async def _http1(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)

        async def event() -> Any:
            while (one := connection.next_event()) is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                data = await reader.read(65536)
                self.bytes_received += len(data)
                connection.receive_data(data)
            return one

        while True:
            head = await event()
            if not isinstance(head, h11.Request):
                return
            body = b""
            while isinstance(piece := await event(), h11.Data):
                body += piece.data
            pairs = [(name.decode(), value.decode("latin-1")) for name, value in head.headers]
            pairs += [(name.decode(), value.decode("latin-1")) for name, value in piece.headers]
            status, headers, content = self._remember(head.method.decode(), head.target.decode(), pairs, body)
            if not any(name.lower() == "content-length" for name, _ in headers):
                headers = [*headers, ("Content-Length", str(len(content)))]
            response = h11.Response(status_code=status, headers=headers)
            writer.write(connection.send(response) or b"")
            if head.method != b"HEAD" and content:
                writer.write(connection.send(h11.Data(content)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            if connection.our_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Echoes; a target that begins with /stream is answered frame by frame as it comes, with trailers at
        the end."""
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        heads: dict[int, dict[str, str]] = {}
        fields: dict[int, list[tuple[str, str]]] = {}
        bodies: dict[int, bytes] = {}
        while data := await reader.read(65536):
            self.bytes_received += len(data)
            for one in connection.receive_data(data):
                number = getattr(one, "stream_id", 0)
                if isinstance(one, h2.events.RequestReceived):
                    pairs = [(str(name), str(value)) for name, value in one.headers]
                    heads[number], fields[number], bodies[number] = dict(pairs), pairs, b""
                    if heads[number][":path"].startswith("/stream"):
                        connection.send_headers(number, [(":status", "200"), ("content-type", "application/grpc")])
                elif isinstance(one, h2.events.TrailersReceived):
                    fields[number] += [(str(name), str(value)) for name, value in one.headers]
                elif isinstance(one, h2.events.DataReceived):
                    connection.acknowledge_received_data(one.flow_controlled_length, number)
                    if heads[number][":path"].startswith("/stream"):
                        connection.send_data(number, one.data)
                    else:
                        bodies[number] += one.data
                elif isinstance(one, h2.events.StreamEnded):
                    if heads[number][":path"].startswith("/stream"):
                        connection.send_headers(number, [("grpc-status", "0")], end_stream=True)
                        continue
                    status, headers, content = self._remember(
                        heads[number][":method"], heads[number][":path"], fields[number], bodies[number]
                    )
                    pairs = [(name.lower(), value) for name, value in headers]
                    connection.send_headers(number, [(":status", str(status)), *pairs])
                    connection.send_data(number, content, end_stream=True)
            writer.write(connection.data_to_send())
            await writer.drain()


class Lab:
    """A gate that looks into everything: connect to `port` as if to any host; it dials the origin for that
    name."""

    def __init__(
        self,
        directory: Path,
        network: Mapping[str, Any],
        *,
        hosts: Mapping[str, list[str]] | None = None,
        hooks: object | None = None,
        protocols: list[str] | None = None,
        trust_origins: bool = True,
        credentials: Mapping[str, Any] | None = None,
        names: Sequence[str] = ("api.example.com", "other.example.com"),
        project: str | None = None,
    ) -> None:
        self.thread = LoopThread()
        self.pki = Pki(directory)
        protocols = protocols or ["http/1.1"]
        self.origins = {
            name: Origin(self.thread, self.pki.server_context([name], (hosts or {}).get(name, protocols)))
            for name in names
        }
        self.plain = Origin(self.thread, None)
        settings = {"allowed_hosts": list(names), **network}
        if trust_origins:
            settings["ca_certificates"] = [self.pki.file]
        self.network = Network.read(settings)
        self.policy = NetworkPolicy(self.network)
        self.lines: list[str] = []
        self.reports: list[dict[str, Any]] = []
        self.used: list[tuple[str, str, str]] = []  # secrets: where, in which direction, which
        self.raised: list[BaseException] = []
        self.dialled: list[str] = []
        placeholders = {name: one.placeholder or PLACEHOLDER for name, one in self.network.secrets.items()}
        self.complaints: list[tuple[str, str]] = []
        self.logins = _logins(credentials, project) if credentials is not None else None
        self.interception = Interception(
            self.network,
            placeholders,
            hooks,
            log=self.lines.append,
            logins=self.logins,
            complain=lambda *words: self.complaints.append(words),
        )
        self.ca_file = str(directory / "sandbox-ca.pem")
        Path(self.ca_file).write_bytes(self.interception.ca_certificate())
        self.host, self.destination_port = "api.example.com", 443
        self.idle = threading.Condition()
        self.open = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        asyncio.run_coroutine_threadsafe(self._accept(), self.thread.loop)

    # GateContext

    asks_first = False

    async def admit(self, destination: Destination, method: str, path: str) -> None:
        """Nobody is asked here."""

    def judge(self, destination: Destination) -> Decision:
        return self.policy.connect(destination.host, destination.port)

    async def dial(self, destination: Destination) -> socket.socket:
        decision = self.judge(destination)
        if not decision:
            raise Denied(decision.rule, decision.reason)
        self.dialled.append(str(destination))
        origin = self.plain if destination.port == 80 else self.origins[destination.host]
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", origin.port))
        return sock

    def report(self, destination: Destination, **fields: Any) -> None:
        self.reports.append({"destination": str(destination), **fields})

    def secret_used(self, destination: Destination, direction: str, name: str) -> None:
        self.used.append((str(destination), direction, name))

    # The gate's part

    async def _accept(self) -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            client.setblocking(False)
            self.open += 1
            task = asyncio.ensure_future(self._connection(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connection(self, client: socket.socket) -> None:
        destination = Destination(self.host, self.destination_port, "dns")
        try:
            peeked = await self._peek(client)
            look = self.interception.tls if peeked[:1] == b"\x16" else self.interception.http
            await look(client, peeked, destination, self)
        except Exception as problem:  # noqa: BLE001 - the tests look at it
            self.raised.append(problem)
        finally:
            client.close()
            with self.idle:
                self.open -= 1
                self.idle.notify_all()

    async def _peek(self, client: socket.socket) -> bytes:
        """What the gate's own code does: waits for a whole ClientHello, or for anything that is not TLS."""
        for _ in range(100):
            ready = asyncio.Event()
            asyncio.get_running_loop().add_reader(client, ready.set)
            try:
                await ready.wait()
            finally:
                asyncio.get_running_loop().remove_reader(client)
            data = client.recv(65536, socket.MSG_PEEK)
            if not data or data[0] != 0x16 or len(data) >= 5 + int.from_bytes(data[3:5], "big"):
                return data
            await asyncio.sleep(0.01)
        return data

    def cancel_all(self) -> None:
        """Ends every tenant's connection, as the gate does when it ends."""

        async def cancel() -> None:
            for one in self._tasks:
                one.cancel()

        self.thread.run(cancel())

    def wait_until_idle(self, timeout: float = 30) -> None:
        """Until every connection has been dealt with."""
        with self.idle:
            assert self.idle.wait_for(lambda: self.open == 0, timeout)

    def update(self, network: Mapping[str, Any]) -> None:
        """What `update_network` does."""
        kept = {"allowed_hosts": self.network.allowed_hosts, "ca_certificates": self.network.ca_certificates}
        self.network = Network.read({**kept, **network})
        self.policy = NetworkPolicy(self.network)
        self.thread.run(self._update())

    async def _update(self) -> None:
        self.interception.update(self.network)

    def close(self) -> None:
        self.interception.close()
        for one in (*self.origins.values(), self.plain):
            one.close()
        self.thread.close()
        self._listener.close()

    # Talking to it

    def tls_socket(self, *, protocols: list[str] | None = None, name: str | None = "") -> ssl.SSLSocket:
        """A connection as a tenant would make it."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if hasattr(ssl, "VERIFY_X509_STRICT"):
            context.verify_flags |= ssl.VERIFY_X509_STRICT
        if protocols:
            context.set_alpn_protocols(protocols)
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        return context.wrap_socket(raw, server_hostname=self.host if name == "" else name)

    def say(self, data: bytes, *, tls: bool = True, once: bool = False) -> bytes:
        """Sends `data`, and returns what comes back: everything until the gate closes, or the first piece of
        it."""
        if tls:
            sock: socket.socket = self.tls_socket()
        else:
            sock = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        with sock:
            sock.sendall(data)
            return sock.recv(65536) if once else _all_of(sock)

    def ask(
        self,
        method: str = "GET",
        target: str = "/",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> tuple[int, dict[str, str], bytes]:
        """One request over TLS; status, headers (names in lower case) and body of the answer."""
        import http.client

        connection = http.client.HTTPConnection(self.host, 443)
        connection.sock = self.tls_socket()
        connection.request(method, target, body=body or None, headers=dict(headers or {}))
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, content


def _logins(given: Mapping[str, Any], project: str | None) -> Logins:
    return Logins(complete(Config.read({"credentials": dict(given)}).credentials), None, project)


def _all_of(sock: socket.socket) -> bytes:
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def secret(**more: Any) -> dict[str, Any]:
    """A configured secret for api.example.com."""
    return {"value": VALUE, "hosts": ["api.example.com"], "placeholder": PLACEHOLDER, **more}


__all__ = ["PLACEHOLDER", "VALUE", "Decision", "Lab", "Origin", "Pki", "secret"]
