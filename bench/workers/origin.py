"""An HTTP origin on the loopback, plain and with TLS: `/big` is half a gigabyte, anything else five bytes.

Threads and sendfile: it must not be what is measured. Prints where it is as one line of JSON, ends with its input.
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import ssl
import sys
import tempfile
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

BIG = 500 * 10**6


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        context, authority = certificate(directory)
        plain, secure = (socket.create_server(("127.0.0.1", 0), backlog=1024) for _ in range(2))
        threading.Thread(target=accept, args=(plain, None), daemon=True).start()
        threading.Thread(target=accept, args=(secure, context), daemon=True).start()
        where = {"port": plain.getsockname()[1], "tls_port": secure.getsockname()[1], "authority": authority}
        print(json.dumps(where), flush=True)
        sys.stdin.read()


def accept(server: socket.socket, context: ssl.SSLContext | None) -> None:
    with tempfile.TemporaryFile() as body:
        body.truncate(BIG)
        while True:
            client, _ = server.accept()
            threading.Thread(target=serve, args=(client, context, body.fileno()), daemon=True).start()


def serve(client: socket.socket, context: ssl.SSLContext | None, body: int) -> None:
    try:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client if context is None else context.wrap_socket(client, server_side=True) as stream:
            answer(stream, body)
    except OSError:
        pass  # the client had enough


def answer(stream: socket.socket, body: int) -> None:
    waiting = b""
    while True:
        while b"\r\n\r\n" not in waiting:
            data = stream.recv(65536)
            if not data:
                return
            waiting += data
        head, _, waiting = waiting.partition(b"\r\n\r\n")
        if b"/big" in head.partition(b"\r\n")[0]:
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
            at = 0
            while at < BIG:
                at += os.sendfile(stream.fileno(), body, at, BIG - at)
        else:
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        if b"onnection: close" in head:
            return


def certificate(directory: str) -> tuple[ssl.SSLContext, str]:
    """A self-signed certificate for *.origin.test and 127.0.0.1, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bench origin")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("origin.test"), x509.DNSName("*.origin.test")]
    made = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority = os.path.join(directory, "origin.pem")
    with open(authority, "wb") as file:
        file.write(made.public_bytes(serialization.Encoding.PEM))
    secret = os.path.join(directory, "key.pem")
    with open(secret, "wb") as file:
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, secret)
    return context, authority


if __name__ == "__main__":
    main()
