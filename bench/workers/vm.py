"""Virtual machines: what is measured about them, each figure by its name."""

from __future__ import annotations

import os
import socketserver
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import serve
from sandbox import Sandbox

MB = 1 << 20
CLONES = 20
PIECE = b"x" * MB
TOUCH = """
import signal
x = bytearray(256 << 20)
for i in range(0, len(x), 4096): x[i] = 1
print('up', flush=True)
signal.pause()"""  # not input(): in a fork its input has ended, and it would end too, while the fork is measured


def machine(**more: object) -> Sandbox:
    return Sandbox({"engine": "qemu", "filesystem": {"root": os.getcwd()}, **more})


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def run(sandbox: Sandbox, *words: str) -> None:
    result = sandbox.exec(list(words))
    if result.exit_code:
        raise RuntimeError(result.stderr)


def start() -> float:
    """A clone and its first command."""
    made: list[Sandbox] = []

    def work() -> None:
        made.append(machine())
        run(made[0], "true")

    elapsed = milliseconds(work)
    made[0].close()
    return elapsed


def cold() -> float:
    """The same where there is no template yet."""
    import tempfile

    before = os.environ.get("SANDBOX_CACHE_DIR")
    with tempfile.TemporaryDirectory(dir=Path.cwd().parent) as place:
        os.environ["SANDBOX_CACHE_DIR"] = place
        try:
            return start()
        finally:
            os.environ.pop("SANDBOX_CACHE_DIR")
            if before is not None:
                os.environ["SANDBOX_CACHE_DIR"] = before


def further() -> float:
    with machine() as sandbox:
        run(sandbox, "true")
        return statistics.median(milliseconds(lambda: run(sandbox, "true")) for _ in range(30))


def python() -> float:
    with machine() as sandbox:
        run(sandbox, "/usr/bin/python3", "-c", "print(1)")
        return milliseconds(lambda: run(sandbox, "/usr/bin/python3", "-c", "print(1)"))


class Forks:
    """Of a machine with 256 MB touched: until the first clone answers, and each further one."""

    further = 0.0

    def first(self) -> float:
        with machine() as sandbox, sandbox.spawn(["python3", "-c", TOUCH]) as program:
            if not program.read().startswith(b"up"):
                raise RuntimeError("the program did not start")
            clones: list[Sandbox] = []
            first = milliseconds(lambda: answered(sandbox, clones, 1))
            several = milliseconds(lambda: answered(sandbox, clones, 5))
            for one in clones:
                one.close()
        self.further = (several - first) / 4
        return first


def answered(sandbox: Sandbox, clones: list[Sandbox], count: int) -> None:
    made = sandbox.fork(count)
    clones += made
    for one in made:
        run(one, "true")


class Idle:
    """Of twenty idle clones, each beyond the first: memory in MB (its share), processor in percent."""

    processor = 0.0

    def memory(self) -> float:
        clones = [machine() for _ in range(CLONES)]
        try:
            for one in clones:
                run(one, "true")
            time.sleep(5)  # until they idle
            rooms = [one._running.pid or 0 for one in clones[1:]]
            before, began = sum(map(_processor, rooms)), time.perf_counter()
            time.sleep(10)
            self.processor = (sum(map(_processor, rooms)) - before) / (time.perf_counter() - began) * 100 / len(rooms)
            return sum(map(_memory, rooms)) / len(rooms)
        finally:
            for one in clones:
                one.close()


def _processes(pid: int) -> list[int]:
    from sandbox.host_process import descendants

    return [pid, *descendants(pid)]


def _memory(room: int) -> float:
    lines = (Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in _processes(room))
    return sum(int(line.split()[1]) for file in lines for line in file if line.startswith("Pss:")) / 1024


def _processor(room: int) -> float:
    ticks = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in _processes(room))
    return sum(int(user) + int(system) for user, system in ticks) / os.sysconf("SC_CLK_TCK")


def read() -> float:
    """MB/s of a project's file, which the machine does not have in memory."""
    Path("large").write_bytes(os.urandom(MB) * 128)
    with machine() as sandbox:
        run(sandbox, "true")
        return 128 / milliseconds(lambda: run(sandbox, "dd", "if=large", "of=/dev/null", "bs=1M")) * 1000


def write() -> float:
    with machine() as sandbox:
        run(sandbox, "true")
        return 128 / milliseconds(lambda: run(sandbox, "dd", "if=/dev/zero", "of=written", "bs=1M", "count=128")) * 1000


class Git:
    """`git status` of 10,000 files: the first and the second time, in milliseconds, and the second outside."""

    second = native = 0.0

    def first(self) -> float:
        if not os.path.exists("repository/.git"):
            _repository()
        git = ("git", "-C", "repository", "status")
        with machine() as sandbox:
            first = milliseconds(lambda: run(sandbox, *git))
            self.second = milliseconds(lambda: run(sandbox, *git))
        subprocess.run(git, check=True, capture_output=True)
        self.native = milliseconds(lambda: subprocess.run(git, check=True, capture_output=True))
        return first


def _repository() -> None:
    for number in range(10_000):
        path = Path(f"repository/{number % 100}/{number}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all")):
        subprocess.run(["git", "-C", "repository", *words], check=True, capture_output=True)


class _Origin(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (64 * MB))
        for _ in range(64):
            self.wfile.write(PIECE)


def gate() -> float:
    """MB/s from an origin on the loopback, through the gate."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Origin) as origin:
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        port = origin.server_address[1]
        network = {"allowed_hosts": [f"origin.test:{port}", "127.0.0.1"]}
        with machine(network=network) as sandbox:
            sandbox._gate_thread.resolve = lambda host, port: ["127.0.0.1"]
            fetch = ("curl", "-sf", "--noproxy", "*", "-o", "/dev/null", f"http://origin.test:{port}/")
            elapsed = milliseconds(lambda: run(sandbox, *fetch))
        origin.shutdown()
    return 64 / elapsed * 1000


def main() -> None:
    forks, idle, repository = Forks(), Idle(), Git()
    figures: dict[str, Callable[[], float]] = {
        "start": start,
        "cold": cold,
        "further": further,
        "python": python,
        "read": read,
        "write": write,
        "gate": gate,
        "fork": forks.first,
        "forks": lambda: forks.further,
        "memory": idle.memory,
        "processor": lambda: idle.processor,
        "git": repository.first,
        "git again": lambda: repository.second,
        "git outside": lambda: repository.native,
    }
    serve({}, figures)


if __name__ == "__main__":
    main()
