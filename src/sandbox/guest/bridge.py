"""Between the two halves of the guest's protocol: descriptors on our side, frames with credit on the guest's.

Where descriptors cannot cross (a virtual machine's serial port, TCP), one thread does for each request what the guest
does elsewhere: it holds the descriptors and moves their bytes as frames. So `Guest` and `Process` are the same for
both, and cost nothing extra where descriptors cross. The thread never blocks on any one descriptor, and buffers at most
the credit of each stream.
"""

from __future__ import annotations

import os
import select
import socket
import stat

from sandbox.errors import GuestError, SandboxClosed
from sandbox.guest import carried, frames
from sandbox.guest.bridge_jobs import AcceptedJob, CommandJob, DialJob, Job, RefusedJob
from sandbox.guest.channel import Channel, Loop, broken
from sandbox.guest.deadlines import Deadlines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_FULL = 2**20  # bytes queued for the guest: above this, no stream adds more
_NEVER_READ = 16 * 2**20  # …and above this, the guest does not read at all
_UNHEARD = 2**20  # bytes that the guest sent unasked and nobody has read yet


class Bridge:
    """Serves one guest until either side has ended."""

    def __init__(self, stream: socket.socket, local: socket.socket) -> None:
        """`stream` leads to the framed guest, `local` to our own `Guest`; this object owns both from now on."""
        if stream.family in (socket.AF_INET, socket.AF_INET6):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.loop = Loop()
        self.full = False
        self._stream = Channel(stream)
        self._local = Channel(local, fds=True)
        self._jobs: dict[int, Job] = {}  # those that the guest may still send frames about
        self._alive: set[Job] = set()
        self._finishing = False  # our side sends no more requests, but still reads
        self._closing = False
        self._held: list[dict[str, object]] | None = None  # what waits while the guest is on hold
        self._carries = False  # the set-up asked for listening sockets
        self._carriers: dict[str, carried.Carrier] = {}
        self._ready = False  # the guest has said so
        self._deadlines: Deadlines[Job] = Deadlines()
        self._open = 0  # connections that tenants made, and that the guest has not ended

    def run(self) -> None:
        """Runs until one side has ended. If the guest broke the protocol, everyone still waiting gets GuestError."""
        problem: GuestError | None = None
        try:
            while True:
                self._arm()
                self.loop.turn(self._deadlines.left())
                for job in self._deadlines.passed():
                    job.overdue()
                    job.settle()
        except SandboxClosed:
            pass
        except GuestError as broke:
            problem = broke
        except Exception as bug:  # noqa: BLE001 - if the thread ended silently, everybody would wait forever
            problem = GuestError("the connection to the guest failed: {bug!r}", bug=bug)
        finally:
            self._close(problem)

    def _close(self, problem: GuestError | None) -> None:
        self._closing = True
        for job in list(self._alive):
            if problem is not None:
                job.fail(problem)
            else:
                job.close()
        if problem is not None:
            self._local.send(broken(problem))
        for carrier in self._carriers.values():
            carrier.close()
        self._stream.close()
        self._local.flush()
        self._local.close()

    # -- for the jobs

    def send(self, message: dict[str, object]) -> None:
        """Sends a frame to the guest. Raises GuestError when the guest does not read."""
        if self._closing:
            return
        if self._held is not None and message["t"] != "close":
            self._held.append(message)
            return
        self._stream.send(message)
        if self._stream.queued > _NEVER_READ:
            raise GuestError("the guest does not read what it is sent")

    def expect(self, job: Job, within: float | None) -> None:
        """`job.overdue` is called unless the guest has gone on with it in so many seconds; None: no longer."""
        self._deadlines.set(job, within)

    def over(self, job: Job) -> None:
        """The guest has sent its last frame about this job."""
        self._jobs.pop(job.number, None)
        self._deadlines.set(job, None)

    def gone(self, job: Job) -> None:
        """Nothing is left of this job."""
        self._deadlines.set(job, None)
        if job in self._alive:
            self._alive.remove(job)
            self._open -= isinstance(job, AcceptedJob)

    # -- the two streams

    def _arm(self) -> None:
        full = self._stream.queued > _FULL
        if full != self.full:
            self.full = full
            for job in list(self._alive):
                job.settle()
        waiting = select.POLLOUT if self._stream.queued else 0
        self.loop.watch(self._stream.fileno(), select.POLLIN | waiting, self._stream_ready)
        events = (select.POLLOUT if self._local.queued else 0) | (0 if full or self._finishing else select.POLLIN)
        self.loop.watch(self._local.fileno(), events, self._local_ready)

    def _stream_ready(self) -> None:
        self._stream.flush()
        for message, _ in self._stream.receive():
            message.pop("fds", None)  # a stream carries no descriptors, whatever the message claims
            if "id" not in message:
                self._said(message)
                continue
            number = message.pop("id")
            if message["t"] == "accepted":
                self._accepted(number, message)
                continue
            job = self._jobs.get(number) if type(number) is int else None
            if job is None:
                raise GuestError("the guest spoke about request {number!r}, which is not there", number=number)
            job.heard(message)
            job.settle()

    def _said(self, message: dict[str, Any]) -> None:
        """Handles what the guest sends unasked: about the sandbox, or what it has seen."""
        fds = []
        if message["t"] == "datagram":
            self._datagram(message)
            return
        if message["t"] == "ready":
            if self._ready:  # each costs descriptors of ours
                raise GuestError("the guest got ready twice")
            self._ready = True
            names = carried.socket_names(message.get("sockets", []))
            if names and (not self._carries or self._carriers):
                raise GuestError("the guest offers sockets that cannot cross")
            self._carriers = {name: carried.Carrier(self.loop, name, self.send) for name in names}
            # It is only read here and never handed to a tenant, so the host's own will do.
            message["sockets"] = ["null", *names]
            fds = [os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)]
            fds += [carrier.theirs.detach() for carrier in self._carriers.values()]
        self._local.send(message, fds)
        if self._local.queued > _UNHEARD:
            raise GuestError("the guest says more than anybody can hear")

    def _accepted(self, number: object, message: dict[str, Any]) -> None:
        """A tenant has connected to something: passes the connection on to the gate."""
        carrier = self._carriers.get(str(message.get("socket")))
        if type(number) is not int or number < carried.FIRST_ID or number in self._jobs or carrier is None:
            raise GuestError("the guest spoke about request {number!r}, which is not there", number=number)
        told = carried.accepted(message)
        try:
            job = AcceptedJob(self, number) if self._open < carried.MOST_CONNECTIONS else None
        except OSError:  # no descriptor is left
            job = None
        if job is None:
            self._refuse(number)
            return
        self._open += 1
        self._jobs[number] = job
        self._alive.add(job)
        if not carrier.offer({**told, "id": number}, [job.theirs.fileno()]):
            job.theirs.close()
            job.ask({"t": "cancel"})
        else:
            job.theirs.detach()
        job.settle()

    def _refuse(self, number: int) -> None:
        """Has a connection reset. It takes no descriptors; only its number is left, until the guest ends it."""
        if len(self._jobs) >= carried.MOST_JOBS:
            raise GuestError("the guest accepts more connections than there can be")
        job = self._jobs[number] = RefusedJob(self, number, None)
        job.ask({"t": "cancel"})

    def _datagram(self, message: dict[str, Any]) -> None:
        carrier = self._carriers.get(str(message.get("socket")))
        if carrier is None:
            raise GuestError("the guest sent something else than a datagram")
        carrier.offer(carried.datagram(message))  # or it is lost

    def _local_ready(self) -> None:
        if self._finishing and not self._local.queued:
            raise SandboxClosed("the sandbox is closed")  # there is nothing left to wait for
        self._local.flush()
        if self._finishing:
            return
        try:
            for message, fds in self._local.receive():
                self._asked(message, fds)
        except SandboxClosed:
            self._finishing = True
            self.send({"t": "close"})

    def _asked(self, message: dict[str, Any], fds: list[int]) -> None:
        kind = message["t"]
        if kind in ("go", "unhold"):
            self._release(kind == "go")
            return
        if kind not in ("exec", "file", "dial"):
            self._carries = self._carries or (kind == "setup" and message.get("carried") is True)
            frames.close_all(fds)  # the owner's pidfd, which is not needed: the stream ends with the owner
        else:
            line, number = socket.socket(fileno=fds[0]), message["id"]
            if kind == "exec":
                if joined := _is_one_stream(fds[2:]):
                    message["joined"] = True
                job: Job = CommandJob(self, number, line, fds[1:], message.get("timeout_ms"), joined=joined)
            else:
                job = (DialJob if kind == "dial" else Job)(self, number, line)
            self._jobs[number] = job
            self._alive.add(job)
            job.settle()
        self.send(message)
        if kind == "hold":
            self._held = []
            self._deadlines.stop()

    def _release(self, told: bool) -> None:
        """Sends what was held back. `told`: the guest waits for a `go` first."""
        held, self._held = self._held or [], None
        self._deadlines.go()
        if told:
            self.send({"t": "go"})
        for message in held:
            self.send(message)


def _is_one_stream(outputs: Sequence[int]) -> bool:
    """Whether output and errors go to the same pipe, socket or terminal, where their order is seen."""
    if len(outputs) != 2:
        return False
    one, two = (os.fstat(fd) for fd in outputs)
    same = (one.st_dev, one.st_ino, one.st_mode) == (two.st_dev, two.st_ino, two.st_mode)
    return same and not stat.S_ISREG(one.st_mode)  # two files that were opened apart have places of their own in it
