"""Our gate, measured in one process of a plain installation: curl inside two living sandboxes."""

from __future__ import annotations

import itertools
import os
import resource
from collections.abc import Callable
from pathlib import Path

from bench.curl import fetches, milliseconds, secure_fetches, words
from bench.harness import serve
from sandbox import Sandbox

CROWD_SECONDS = 30
CROWD = """
import selectors, socket, sys, time
REQUEST = b'GET /s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'
port, seconds, count = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
chosen, done, end = selectors.DefaultSelector(), 0, time.monotonic() + seconds
for _ in range(count):
    one = socket.create_connection(('host.sandbox.internal', port)); one.sendall(REQUEST)
    chosen.register(one, selectors.EVENT_READ)
while time.monotonic() < end:
    for key, _ in chosen.select(1):
        answer = key.fileobj.recv(4096)
        assert answer.endswith(b'hello'), answer
        done += 1; key.fileobj.sendall(REQUEST)
print(done)
"""


def inside(sandbox: Sandbox, argv: list[str], count: int) -> float:
    result = sandbox.exec(argv, timeout=300)
    if result.exit_code:
        raise RuntimeError(result.stderr)
    return milliseconds(result.stdout, count)


def crowd(sandbox: Sandbox, port: int) -> dict[str, float]:
    """500 connections at once, each asking again when it was answered; what the owner's memory grew by meanwhile."""
    program = ["/usr/bin/python3", "-c", CROWD, str(port)]
    sandbox.exec([*program, "2", "500"])  # fills the caches and pools that are then to stay as they are
    before = resident()
    result = sandbox.exec([*program, str(CROWD_SECONDS), "500"], timeout=CROWD_SECONDS * 3)
    if result.exit_code:
        raise RuntimeError(result.stderr.strip().splitlines()[-1])
    return {"requests": float(result.stdout) / CROWD_SECONDS, "grown": (resident() - before) / 2**20}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    port, tls_port = int(os.environ["BENCH_PORT"]), int(os.environ["BENCH_TLS_PORT"])
    passing = Sandbox({"network": {"localhost_ports": [port]}})
    looking = Sandbox(
        {
            "network": {
                "allowed_hosts": ["*.origin.test", "127.0.0.1"],
                "intercept": True,
                "ca_certificates": [os.environ["BENCH_AUTHORITY"]],
            }
        },
        resolve=lambda host, port: ["127.0.0.1"],
    )
    figures: dict[str, Callable[[], float]] = {}
    for name, (argv, count) in fetches(f"http://host.sandbox.internal:{port}").items():
        figures[name] = lambda argv=argv, count=count: inside(passing, argv, count)  # type: ignore[misc]
    for name, (argv, count) in secure_fetches(f"https://www.origin.test:{tls_port}").items():
        figures[name] = lambda argv=argv, count=count: inside(looking, argv, count)  # type: ignore[misc]
    fresh = itertools.count()
    figures["first"] = lambda: inside(looking, words(f"https://n{next(fresh)}.origin.test:{tls_port}/s", "-k"), 1)
    crowded: dict[str, float] = {}

    def of_crowd(part: str) -> float:
        if not crowded:
            crowded.update(crowd(passing, port))
        return crowded[part]

    figures["crowd"] = lambda: of_crowd("requests")
    figures["crowd-memory"] = lambda: of_crowd("grown")
    serve({}, figures)
    passing.close()
    looking.close()


if __name__ == "__main__":
    main()
