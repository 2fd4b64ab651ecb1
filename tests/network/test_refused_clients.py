"""A refused host: clients give up at the first answer, and the reason is on the screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.network.gate import refusal
from tests.network.furnished import Furnished
from tests.network.room import LOCAL, Walls, walled

__all__ = ["walled"]
pytestmark = pytest.mark.walls

TOLD = "add 'refused.test' to network.allowed_hosts"
# Each shows what it got as it does by itself.
CLIENTS = {
    "curl": "curl -sS --fail-with-body https://refused.test/",
    "wget": "wget -O- https://refused.test/",
    "git": "git ls-remote https://refused.test/x.git",
    "npm": "npm view left-pad --no-update-notifier --registry=https://refused.test/",
    "pnpm": "npm_config_update_notifier=false {pnpm} view left-pad --registry=https://refused.test/",
    "node": "node -e \"fetch('https://refused.test/').then(async r => console.log(r.status, await r.text()))\"",
    "go": "GOPROXY=https://refused.test GONOSUMDB='*' go mod download refused.example/x@v1.0.0",
    "java": "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Ask.java https://refused.test/",
    "cargo": "{cargo} fetch",
    "pip": "/usr/bin/python3 -m pip download --no-deps -i https://refused.test/simple six",
    "uv": "{uv} pip install --target x --index-url https://refused.test/simple six",
}
# These say "no such package", and nothing, or the status alone, of why; `sandbox run` then tells.
SAY_LITTLE = ("pip", "uv")
FILES = {
    "Ask.java": """
class Ask {
    public static void main(String[] words) throws Exception {
        var asked = (java.net.HttpURLConnection) new java.net.URL(words[0]).openConnection();
        System.out.println(asked.getResponseCode() + " " + asked.getResponseMessage());
    }
}
""",
    "go.mod": "module m\n",
    "Cargo.toml": '[package]\nname = "m"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nleft = "1"\n',
    "src/main.rs": "fn main() {}\n",
    ".cargo/config.toml": """
[source.crates-io]
replace-with = "refused"
[source.refused]
registry = "sparse+https://refused.test/index/"
""",
}


def found(client: str) -> str:
    """Where the client lies; one that is behind rustup's name for it is asked for itself. Skips without it."""
    if client == "pip":
        if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], capture_output=True).returncode:
            pytest.skip("the system's Python has no pip")
        return "/usr/bin/python3"
    path = shutil.which(client, path=f"{os.environ['PATH']}:{sys.prefix}/bin")
    if path is not None and os.path.basename(os.path.realpath(path)) == "rustup":
        asked = subprocess.run(["rustup", "which", client], capture_output=True, text=True)
        path = asked.stdout.strip() or None
    if path is None:
        pytest.skip(f"no {client} here")
    return path


def shown(path: str) -> list[str]:
    """What must be visible inside for a program that was installed elsewhere: the tree it came with."""
    directory = os.path.dirname(os.path.realpath(path))
    if directory.startswith(("/usr/", "/bin", "/opt/")):
        return []
    tree = directory.partition("/node_modules/")[0]
    return [os.path.dirname(directory) if tree == directory else tree, os.path.dirname(path)]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gives_up_at_once_with_the_reason(walled: Walls, client: str) -> None:
    path = found(client)
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    place = walled(allowed_hosts=LOCAL, more={"filesystem": {"allow_read": shown(path)}})
    done = place.run(CLIENTS[client].replace("{" + client + "}", path))
    screen = " ".join((done.stdout + done.stderr).replace("\u2502", " ").split())  # pnpm breaks lines in a frame
    if client not in SAY_LITTLE:
        assert "403" in screen and TOLD in screen
    assert done.exit_code != 0 or client in ("node", "java")  # whose programs above look at the answer
    told = [one for one in place.heard.events if "refused.test" in one["url"]]
    assert len(told) == 1, told  # nobody tries again
    assert TOLD in told[0]["reason"]
    assert place.asked == []


def test_a_client_that_takes_its_time_before_it_speaks_gets_the_reason(
    walled: Walls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that reads its certificates in an emulated machine, between the connection and its first word."""
    monkeypatch.setattr(refusal, "FIRST_WORD", 0.1)
    code = """
import socket, time
s = socket.create_connection(("refused.test", 80))
time.sleep(1)  # what is tested is time
s.sendall(b"GET / HTTP/1.1\\r\\nHost: refused.test\\r\\nConnection: close\\r\\n\\r\\n")
while data := s.recv(65536):
    print(data.decode(), end="")
"""
    done = walled().python(code)
    assert done.stdout.startswith("HTTP/1.1 403") and TOLD in done.stdout, done.stderr


@pytest.mark.parametrize("client", SAY_LITTLE)
def test_the_run_reports_what_a_client_does_not_print(tmp_path: Path, client: str) -> None:
    path = found(client)
    words = ["sh", "-c", CLIENTS[client].replace("{" + client + "}", path)]
    reads = [word for one in shown(path) for word in ("--ro", one)]
    command = [sys.executable, "-m", "sandbox", "run", *reads, "--", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stderr.splitlines()[-1].endswith(TOLD), done.stderr


def test_a_client_of_http2_alone_is_answered_too(walled: Walls) -> None:
    done = walled().run("curl -sS --http2-prior-knowledge http://refused.test/")
    assert "add 'refused.test' to network.allowed_hosts" in done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_a_client_that_offers_http2_alone_inside_tls_is_answered_too(walled: Walls) -> None:
    code = """
const session = require('http2').connect('https://refused.test')
const stream = session.request({':path': '/', ':method': 'POST'})
stream.on('response', head => console.log(session.alpnProtocol, head[':status'], head['x-proxy-error']))
stream.on('data', data => console.log(String(data))).on('end', () => session.close()).end('x'.repeat(1000))
"""
    done = walled().run("node", "-e", code)
    assert done.stdout.startswith("h2 403 blocked-by-allowlist\n") and TOLD in done.stdout, done.stderr
    assert done.exit_code == 0


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_a_websocket_to_a_refused_host_is_answered_with_the_reason(walled: Walls, scheme: str) -> None:
    code = f"""
import socket, ssl
s = socket.create_connection(("refused.test", {443 if scheme == "wss" else 80}))
if {scheme == "wss"}:
    s = ssl.create_default_context().wrap_socket(s, server_hostname="refused.test")
s.sendall(b"GET /chat HTTP/1.1\\r\\nHost: refused.test\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
          b"Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n")
while data := s.recv(65536):
    print(data.decode(), end="")
"""
    done = walled().python(code)
    assert done.stdout.startswith("HTTP/1.1 403 Forbidden: blocked by the sandbox") and TOLD in done.stdout, done.stderr
    assert "HTTP/1.1 101" not in done.stdout


def test_an_allowed_host_that_does_not_resolve_is_a_502_with_its_reason(walled: Walls) -> None:
    place = walled(allowed_hosts=["missing.test"])
    done = place.run("curl -sS -w '%{http_code}' https://missing.test/")
    assert "could not reach missing.test:443" in done.stdout and done.stdout.endswith("502")
    assert not any(one["blocked"] for one in place.heard.events)


def test_the_first_secret_can_be_added_while_the_sandbox_runs(furnished: Callable[..., Furnished]) -> None:
    place = furnished({"intercept": False})
    assert "sandbox-ca" in place.run("cat /etc/ssl/certs/ca-certificates.crt | tail -30; env | grep sandbox-ca").stdout
    secret = {"value": "sk-0123456789abcdef", "hosts": ["api.test"]}
    place.sandbox.update_network({"secrets": {"KEY": secret}})
    done = place.run("curl", "-sS", place.url())
    assert done.exit_code == 0, done.stderr
    assert place.origins["api.test"].seen


def test_the_key_of_the_authority_is_never_seen_inside(walled: Walls) -> None:
    from sandbox.config.home import authority_directory

    place = walled()
    assert list(Path(authority_directory()).glob("*/key.pem"))
    done = place.run(f"cat {authority_directory()}/*/key.pem; ls /etc/sandbox-ca.pem")
    assert done.stdout == "/etc/sandbox-ca.pem\n"
