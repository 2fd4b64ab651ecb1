"""`make demo`: a hostile script, once as it is and once behind the walls, and what stopped it.

Everything it steals is bait: a home directory with keys, projects and sockets, made for the occasion and thrown away.
"""

from __future__ import annotations

import ctypes
import http.server
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sandbox.config.home import cache_directory

HERE = Path(__file__).parent
SANDBOX = [sys.executable, "-m", "sandbox"]

# Attempt -> what it is in words, and what stops it.
WALLS = {
    "ssh_key": ("read ~/.ssh/id_ed25519", "the home directory is empty inside"),
    "cloud_credentials": ("read ~/.aws/credentials", "the home directory is empty inside"),
    "dot_env": ("read the project's .env", "masked: a sensitive file pattern"),
    "another_project": ("read another project", "only this project is mounted"),
    "environment": ("take AWS_SECRET_ACCESS_KEY", "variables that look like secrets are filtered"),
    "host_processes": ("look at your processes", "its own process namespace"),
    "docker_socket": ("talk to docker", "sockets of the host are out of sight"),
    "keyring": ("read your kernel keyring", "system calls filtered, a keyring of its own"),
    "host_loopback": ("call a server on your localhost", "its own network namespace"),
    "internet_by_address": ("connect to an address", "every connection ends at the gate: not on the list"),
    "internet_by_name": ("connect to a name", "the gate answers DNS: not on the list"),
    "dns_channel": ("smuggle a secret in a DNS query", "queries are never forwarded"),
    "git_hook": ("plant a git hook", ".git/hooks cannot be written"),
    "startup_file": ("plant a line in ~/.bashrc", "written to a home that vanishes"),
    "become_root": ("make a user namespace", "system calls filtered"),
    "outlive": ("leave a process behind", "everything ends with the sandbox"),
}
# Never done outside, not even to bait: these would leave this machine.
NOT_OUTSIDE = "internet_by_address,internet_by_name,dns_channel"


class Bait:
    """A home directory worth robbing, and a few things on the host."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = self.home / "projects" / "app"
        for directory in (".ssh", ".aws", ".docker/run", "projects/other", "projects/app/.git/hooks"):
            (self.home / directory).mkdir(parents=True)
        (self.home / ".ssh/id_ed25519").write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
        (self.home / ".aws/credentials").write_text("aws_secret_access_key = bait")
        (self.home / ".bashrc").write_text("# yours\n")
        (self.home / "projects/other/plan.txt").write_text("the secret plan")
        (self.project / ".env").write_text("DATABASE_URL=postgres://bait")
        shutil.copy(HERE / "hostile.py", self.project / "agent.py")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Quiet)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.docker = socket.socket(socket.AF_UNIX)
        self.docker.bind(str(self.home / ".docker/run/docker.sock"))
        self.docker.listen()
        threading.Thread(target=self._be_docker, daemon=True).start()
        self.process = subprocess.Popen(["sh", "-c", "read x", "a-process-of-yours"], stdin=subprocess.PIPE)
        # add_key into the session keyring, as a login's tickets and tokens are.
        ctypes.CDLL(None).syscall(248, b"user", b"demo-key", b"bait", ctypes.c_long(4), ctypes.c_long(-3))
        self.environment = {
            **os.environ,
            "HOME": str(self.home),
            "SANDBOX_HOME": str(root / "sandbox-home"),
            "AWS_SECRET_ACCESS_KEY": "bait",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            # A virtual machine is cloned from one that was made once, for all demonstrations.
            "SANDBOX_CACHE_DIR": cache_directory(),
        }

    def _be_docker(self) -> None:
        while True:
            client, _ = self.docker.accept()
            client.sendall(b"root on your machine")
            client.close()

    def run(self, *launcher: str, skip: str = "") -> dict[str, dict[str, object]]:
        """What each attempt came to, as far as can be seen from outside."""
        # Random: two demonstrations at the same time take no process for the other's.
        mark = str(31337 * 10**9 + secrets.randbelow(10**9))
        command = [*launcher, "/usr/bin/python3", "agent.py", str(self.server.server_port), skip, mark]
        where = {"cwd": self.project, "env": self.environment}
        done = subprocess.run(command, **where, capture_output=True, text=True, check=False)  # type: ignore[call-overload]
        found = {one["attempt"]: one for one in map(json.loads, done.stdout.splitlines())}
        if "outlive" not in found:
            sys.exit(f"the script did not get to its end:\n{done.stderr}")
        # What it says is its word; what it left on the host is ours to see.
        found["outlive"]["got"] = _end_processes(mark)
        found["git_hook"]["got"] = (self.project / ".git/hooks/post-checkout").exists()
        found["startup_file"]["got"] = "evil" in (self.home / ".bashrc").read_text()
        (self.project / ".git/hooks/post-checkout").unlink(missing_ok=True)
        (self.home / ".bashrc").write_text("# yours\n")
        return found

    def close(self) -> None:
        self.server.shutdown()
        self.docker.close()
        self.process.kill()


class _Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"your database")

    def log_message(self, format: str, *args: object) -> None:
        pass


def _end_processes(mark: str) -> bool:
    """Whether a process with `mark` among its arguments was there; it is not any more."""
    found = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.kill(int(pid), signal.SIGKILL)
                found = True
        except OSError:
            pass
    return found


def main() -> int:
    picture = sys.argv[2] if sys.argv[1:2] == ["--svg"] else None
    engine = sys.argv[1:3] if sys.argv[1:2] == ["--engine"] else []
    console = Console(width=118 if picture or not sys.stdout.isatty() else None, highlight=False, record=bool(picture))
    with tempfile.TemporaryDirectory() as directory:
        bait = Bait(Path(directory))
        try:
            console.print("\n[bold]$ python3 agent.py[/]                [dim]# a hostile script, as it is[/]")
            outside = bait.run(skip=NOT_OUTSIDE)
            run = " ".join(["sandbox run", *engine])
            console.print(f"[bold]$ {run} python3 agent.py[/]    [dim]# the same, behind the walls[/]\n")
            inside = bait.run(*SANDBOX, "run", *engine)
            record = [*SANDBOX, "audit", "--blocked-only", "--json"]
            blocked = subprocess.run(record, env=bait.environment, capture_output=True, text=True, check=True).stdout
        finally:
            bait.close()
    console.print(_table(outside, inside))
    held = not any(one["got"] for one in inside.values())
    stopped = sum(not one["got"] for one in inside.values())
    verdict = "[green]held[/]" if held else "[bold red]did NOT hold[/]"
    console.print(f"\nThe walls {verdict}: {stopped} of {len(inside)} attempts stopped;", end=" ")
    console.print(f"{len(blocked.splitlines())} refusals on its record.")
    console.print('Your turn: [bold]PATH="$PWD/.venv/bin:$PATH"[/], then', end=" ")
    console.print("[bold]sandbox run -- COMMAND[/] and [bold]sandbox audit --blocked-only[/]\n")
    if picture:
        console.save_svg(picture, title="make demo")
    return 0 if held else 1


def _table(outside: dict[str, dict[str, object]], inside: dict[str, dict[str, object]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("it tries to", "without", "in the sandbox", "stopped by"):
        table.add_column(name)
    for name, (what, wall) in WALLS.items():
        free = "[dim]not tried[/]"
        if name in outside:
            free = "[red]succeeds[/]" if outside[name]["got"] else "[dim]fails[/]"
        seen = "[bold red]SUCCEEDS[/]" if inside[name]["got"] else "[green]stopped[/]"
        table.add_row(what, free, seen, f"[dim]{wall}[/]")
    return table


if __name__ == "__main__":
    sys.exit(main())
