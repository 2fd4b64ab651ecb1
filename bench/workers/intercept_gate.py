"""Our gate as an explicit proxy: the very code that serves a sandbox, without the walls around its tenant."""

from __future__ import annotations

import socket
import sys

from sandbox.config.model import Network
from sandbox.network.watch import Watch


def main(authority_of_origins: str, own_authority: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    network = Network.read(
        {
            "allowed_hosts": ["*.bench.test", "127.0.0.1"],
            "ca_certificates": [authority_of_origins],
            "secrets": {"KEY": {"value": "the-value-of-a-key", "hosts": ["*.bench.test"], "placeholder": "PLACEHOLDER-1"}},
        }
    )
    watch = Watch(
        {"proxy": listener},
        network,
        sandbox_id="vm-bench",
        emit=lambda event: None,
        record=lambda *words, **fields: None,
        dial=lambda address, port: socket.create_connection((address, port)),
        resolve=lambda host, port: ["127.0.0.1"],
        placeholders={"KEY": "PLACEHOLDER-1"},
    )
    pem = watch.ca_certificate()
    assert pem is not None
    with open(own_authority, "wb") as file:
        file.write(pem)
    watch.start()
    print(port, flush=True)
    sys.stdin.read()
    watch.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
