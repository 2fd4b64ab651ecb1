"""Firecracker's HTTP API, on its Unix socket. The names of paths and fields are those of its specification."""

from __future__ import annotations

import http.client
import json
import socket

from sandbox.errors import WallError

PATIENCE = 60.0  # seconds for one answer; saving a large machine's memory takes time
MOST = 1 << 16  # bytes of an answer


class Api:
    """One connection. Every method raises WallError when Firecracker refuses or has ended."""

    def __init__(self, stream: socket.socket) -> None:
        stream.settimeout(PATIENCE)
        self._connection = http.client.HTTPConnection("localhost")
        self._connection.auto_open = 0  # a second connection might not reach Firecracker
        self._connection.sock = stream

    def configure(
        self, *, cpus: int, memory_mb: int, kernel: str, initrd: str, words: str, tap: str, vsock: str
    ) -> None:
        """Describes the machine to start. `vsock` is the path of the socket that leads to its ports."""
        self.put("/machine-config", {"vcpu_count": cpus, "mem_size_mib": memory_mb, "smt": False})
        self.put("/boot-source", {"kernel_image_path": kernel, "initrd_path": initrd, "boot_args": words})
        self.put("/network-interfaces/eth0", {"iface_id": "eth0", "host_dev_name": tap})
        self.put("/vsock", {"guest_cid": 3, "uds_path": vsock})
        self.put("/entropy", {})

    def start(self) -> None:
        self.put("/actions", {"action_type": "InstanceStart"})

    def pause(self) -> None:
        self._ask("PATCH", "/vm", {"state": "Paused"})

    def resume(self) -> None:
        self._ask("PATCH", "/vm", {"state": "Resumed"})

    def save(self, state: str, memory: str) -> None:
        """Writes a paused machine to two files."""
        self.put("/snapshot/create", {"snapshot_type": "Full", "snapshot_path": state, "mem_file_path": memory})

    def load(self, state: str, memory: str) -> None:
        """Makes a new Firecracker continue from these files. Its machine's memory is a private mapping of the file."""
        backend = {"backend_type": "File", "backend_path": memory}
        self.put("/snapshot/load", {"snapshot_path": state, "mem_backend": backend, "resume_vm": True})

    def put(self, path: str, body: dict[str, object]) -> None:
        self._ask("PUT", path, body)

    def _ask(self, method: str, path: str, body: dict[str, object]) -> None:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            self._connection.request(method, path, json.dumps(body), headers)
            with self._connection.getresponse() as answer:
                said = answer.read(MOST + 1)
        except (OSError, http.client.HTTPException) as problem:
            raise WallError("Firecracker has ended: {problem}", problem=problem) from None
        if len(said) > MOST:
            self.close()  # we cannot tell where the next answer would begin
            raise WallError("Firecracker has ended: {problem}", problem="its answer is too long")
        if not 200 <= answer.status < 300:
            raise WallError("Firecracker refused {path}: {said}", path=path, said=_fault(said))

    def close(self) -> None:
        self._connection.close()


def _fault(said: bytes) -> str:
    """Firecracker's error message, safe to print: a tenant may have taken over Firecracker by then."""
    try:
        told = json.loads(said)
        text = told.get("fault_message") if isinstance(told, dict) else None
    except (ValueError, RecursionError):
        text = None
    return ascii(text if isinstance(text, str) else said.decode(errors="replace"))[1:-1][:500]
