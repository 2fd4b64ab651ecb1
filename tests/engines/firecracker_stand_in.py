#!/usr/bin/python3
"""A stand-in for Firecracker, which no machine of ours can run: the same API on a Unix socket, with QEMU behind it.

It is strict as Firecracker is: unknown and missing fields, and calls at the wrong time, are refused. The machine boots
the very kernel and initramfs it is given; vsock is a real one (firecracker_vsock.py), the network the room's card.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

QEMU = "/usr/bin/qemu-system-x86_64"
# What the API knows: the path, the fields that must be there, those that may, and whether the machine must be running.
CALLS: dict[str, tuple[set[str], set[str], bool]] = {
    "PUT /machine-config": (
        {"vcpu_count", "mem_size_mib"},
        {"smt", "track_dirty_pages", "cpu_template", "huge_pages"},
        False,
    ),
    "PUT /boot-source": ({"kernel_image_path"}, {"initrd_path", "boot_args"}, False),
    "PUT /network-interfaces/eth0": ({"iface_id", "host_dev_name"}, {"guest_mac", "mtu"}, False),
    "PUT /vsock": ({"guest_cid", "uds_path"}, {"vsock_id"}, False),
    "PUT /entropy": (set(), {"rate_limiter"}, False),
    "PUT /actions": ({"action_type"}, set(), False),
    "PATCH /vm": ({"state"}, set(), True),
    "PUT /snapshot/create": ({"snapshot_path", "mem_file_path"}, {"snapshot_type"}, True),
    "PUT /snapshot/load": (
        {"snapshot_path", "mem_backend", "resume_vm"},
        {"network_overrides", "track_dirty_pages"},
        False,
    ),
}


class Machine:
    def __init__(self, run: str) -> None:
        self._run = run
        self.said: dict[str, dict[str, Any]] = {}
        self._monitor: Any = None
        self.paused = False

    @property
    def running(self) -> bool:
        return self._monitor is not None

    def start(self) -> None:
        from firecracker_vsock import Vsock  # type: ignore[import-not-found]

        backend = socket.socket(socket.AF_UNIX)
        backend.bind(f"{self._run}/vhost.sock")
        backend.listen(1)
        vsock = Vsock(backend, self.said["/vsock"]["uds_path"])
        threading.Thread(target=vsock.run, daemon=True).start()
        monitor, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        words = self._words(theirs.fileno())
        process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        theirs.close()
        threading.Thread(target=lambda: os._exit(process.wait() and 1), daemon=True).start()
        self._monitor = monitor.makefile("rwb")
        self._monitor.readline()
        self.ask("qmp_capabilities")

    def _words(self, monitor: int) -> list[str]:
        config, source = self.said["/machine-config"], self.said["/boot-source"]
        khz = subprocess.run(["/.machine/guest", "--khz"], capture_output=True, check=True).stdout.decode().strip()
        emulated = f"mitigations=off norandmaps tsc=reliable tsc_early_khz={khz}"
        memory = config["mem_size_mib"]
        return [
            QEMU,
            *("-M", "microvm,acpi=on,pit=on,pic=on,rtc=on,memory-backend=ram"),
            *("-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm,-la57,-smap,-pku,-pks"),
            *("-smp", str(config["vcpu_count"]), "-m", str(memory)),
            *("-object", f"memory-backend-memfd,id=ram,size={memory}M,share=on"),
            *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot"),
            *("-serial", "file:/dev/null"),
            *("-kernel", source["kernel_image_path"], "-initrd", source["initrd_path"]),
            *("-append", f"{source['boot_args']} {emulated}"),
            *(
                "-netdev",
                f"tap,id=net,ifname={self.said['/network-interfaces/eth0']['host_dev_name']},script=no,downscript=no",
            ),
            *("-device", "virtio-net-device,netdev=net"),
            *("-chardev", f"socket,id=vsock,path={self._run}/vhost.sock"),
            *("-device", "vhost-user-vsock-device,chardev=vsock"),
            *("-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-device,rng=rng"),
            *("-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control"),
        ]

    def ask(self, command: str, **arguments: object) -> Any:
        self._monitor.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        self._monitor.flush()
        while True:
            answer = json.loads(self._monitor.readline())
            if "error" in answer:
                raise ValueError(answer["error"]["desc"])
            if "return" in answer:
                return answer["return"]

    def save(self, state: str, memory: str) -> None:
        """QEMU cannot save a machine with such a vsock. What is kept is how to come to the same state again."""
        for path in (state, memory):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self.said, file)

    def load(self, state: str, memory: str) -> None:
        """Boots, until its guest listens as the one that was saved did."""
        with open(state, encoding="utf-8") as file, open(memory, encoding="utf-8") as same:
            self.said = json.load(file)
            if json.load(same) != self.said:
                raise ValueError("the two files are not of one machine")
        self.start()
        while not self._listens(1024):
            threading.Event().wait(0.02)

    def _listens(self, port: int) -> bool:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(self.said["/vsock"]["uds_path"])
            stream.sendall(b"CONNECT %d\n" % port)
            return stream.recv(32).startswith(b"OK ")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    machine: Machine

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def _answer(self, method: str) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self._do(f"{method} {self.path}", body)
        except (KeyError, ValueError, OSError) as problem:
            return self._say(400, json.dumps({"fault_message": f"{type(problem).__name__}: {problem}"}).encode())
        self._say(204)

    def _do(self, call: str, body: dict[str, Any]) -> None:
        machine = self.machine
        must, may, running = CALLS[call]
        if not must <= set(body) <= must | may:
            raise ValueError(f"the fields of {call} are not those of the API: {sorted(body)}")
        if running is not machine.running:
            raise ValueError(f"{call} is not supported {'before' if running else 'after'} starting the microVM")
        if call == "PUT /actions":
            if body["action_type"] != "InstanceStart":
                raise ValueError("unknown action")
            machine.start()
        elif call == "PATCH /vm":
            machine.ask({"Paused": "stop", "Resumed": "cont"}[body["state"]])
            machine.paused = body["state"] == "Paused"
        elif call == "PUT /snapshot/create":
            if not machine.paused:
                raise ValueError("the microVM is not paused")
            machine.save(body["snapshot_path"], body["mem_file_path"])
        elif call == "PUT /snapshot/load":
            if machine.said or body["mem_backend"]["backend_type"] != "File":
                raise ValueError("only a fresh process loads a snapshot, and from a file")
            machine.load(body["snapshot_path"], body["mem_backend"]["backend_path"])
        else:
            machine.said[self.path] = body

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        if body:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass

    def address_string(self) -> str:
        return ""


def main() -> None:
    words = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    path = words["--api-sock"]
    Handler.machine = Machine(os.path.dirname(path))
    with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
