"""Our Python client and the same calls in process, measured side by side."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import serve
from sandbox import Sandbox, get_vm
from sandbox.client import Client
from sandbox.config.home import home
from sandbox.registry.registration import Registration

CROWD = 1000
CONTENT = os.urandom(100_000_000)


def main() -> None:
    client = Client(command=[str(Path(sys.executable).parent / "sandbox"), "--rpc"])
    sandbox = Sandbox()
    server = get_vm(client.id).pid or 0
    at_start = peak(server)
    client.write_file("/tmp/large", CONTENT)  # in the first turn it may be read before it is written
    config = sandbox.config.plain()
    numbers = itertools.count()

    def register() -> Callable[[], None]:
        return Registration(home(), f"vm-{next(numbers):07x}e", config, ["true"]).end

    def read() -> None:
        if len(client.read_file("/tmp/large")) != len(CONTENT):
            raise RuntimeError("not all of it came back")

    def run(place: Sandbox | Client) -> None:
        if place.exec(["true"]).exit_code:
            raise RuntimeError("true failed")

    serve(
        {
            "in process": lambda: run(sandbox),
            "rpc": lambda: run(client),
            "register": register,
            "write": lambda: client.write_file("/tmp/large", CONTENT),
            "read": read,
        },
        {"crowd": lambda: crowd(client), "server memory": lambda: (peak(server) - at_start) / 1000},
    )
    client.close()
    sandbox.close()


def crowd(client: Client) -> float:
    """Milliseconds until a thousand commands, all under way at once, have ended."""
    start = time.perf_counter()
    streams = [client._connection.stream("exec", {"command": ["true"]}) for _ in range(CROWD)]
    failed = [answer for answer in (stream.next() for stream in streams) if answer["exit_code"] != 0]
    if failed:
        raise RuntimeError(f"{len(failed)} failed: {failed[0]}")
    return (time.perf_counter() - start) * 1000


def peak(pid: int) -> int:
    """The most memory a process has had, in kilobytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError(f"no VmHWM for process {pid}")


if __name__ == "__main__":
    main()
