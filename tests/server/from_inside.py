"""What a program inside does to reach the server that runs its sandbox."""

from __future__ import annotations

from tests.server.serving import Served

HOSTS = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::ffff:127.0.0.1", "10.0.2.2", "host.docker.internal")


def look_for(server: Served) -> list[str]:
    """A command that asks the server for its health by every name of this machine, a line for each."""
    code = (
        "import socket\n"
        f"for host in (*{HOSTS!r}, socket.gethostname()):\n"
        "    try:\n"
        f"        line = socket.create_connection((host, {server.address.rpartition(':')[2]}), 2)\n"
        "        line.sendall(b'GET /v1/health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "        print(host, line.recv(1000))\n"
        "    except OSError as problem:\n"
        "        print(host, 'refused')\n"
    )
    return ["/usr/bin/python3", "-c", code]


def refused(server: Served, box: str) -> None:
    """Nothing of the server comes into that sandbox."""
    said = server.http.post(f"/v1/sandboxes/{box}/exec", json={"command": look_for(server)}).json()["stdout"]
    assert '"ok"' not in said, said
    assert said.count("\n") == len(HOSTS) + 1, said
