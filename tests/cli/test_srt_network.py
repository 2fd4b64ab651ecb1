"""What srt's settings do to a program's requests: credentials put in by the gate, headers, authorities, proxies.

Every host is a stand-in on the loopback (`tests/agents/mock.py`), reached through `httpProxyPort`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.mock import World
from tests.cli.test_srt import project, srt

__all__ = ["project"]
pytestmark = pytest.mark.walls
HOST = "api.example.com"
REAL = "real-token-0123456789abcdef"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    def answer(*_: object) -> Any:
        return 200, [("Set-Cookie", "a=b"), ("X-Other", "1")], b"fine"

    made = World(tmp_path_factory.mktemp("world"), answer)
    os.chmod(made.pki.file, 0o644)
    yield made
    made.end()


def settings(world: World, network: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    terminate = {"extraCaCertPaths": [world.pki.file], **(network or {}).pop("tlsTerminate", {})}
    said = {"allowedDomains": [HOST], "deniedDomains": [], "httpProxyPort": world.port, "tlsTerminate": terminate}
    return {"network": {**said, **(network or {})}, **more}


def sent(world: World, name: str) -> str | None:
    return {key.lower(): value for key, value in world.seen[-1]["headers"]}.get(name)


def jwt(claims: dict[str, Any]) -> str:
    parts = [json.dumps(one).encode() for one in ({"alg": "HS256"}, claims)]
    return ".".join(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts) + ".c2lnbmF0dXJl"


def claims_of(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_a_masked_file_is_a_placeholder_inside_and_its_value_outside(project: Path, world: World) -> None:
    token = project.parent / "home" / "token"
    token.write_text(f"{REAL}\n")
    asked = settings(world, credentials={"files": [{"path": str(token), "mode": "mask"}]})
    done = srt(project, "-c", f'cat {token}; curl -sS -H "X-Key: $(cat {token})" https://{HOST}/', settings=asked)
    inside, answer = done.stdout.split("\n")
    assert answer == "fine" and REAL not in done.stdout and len(inside) >= 20, done.stderr
    assert sent(world, "x-key") == REAL
    assert token.read_text() == f"{REAL}\n"


def test_of_a_file_only_what_the_pattern_finds_is_masked(project: Path, world: World) -> None:
    file = project.parent / "home" / "netrc"
    file.write_text(f"machine {HOST}\nlogin me\npassword {REAL}\n# {REAL}\n")
    entry = {"path": str(file), "mode": "mask", "extract": r"password\s+(\S+)", "maskDuplicates": True}
    asked = settings(world, credentials={"files": [entry]})
    done = srt(project, "-c", f"cat {file}; curl -sS --netrc-file {file} https://{HOST}/", settings=asked)
    assert done.stdout.startswith(f"machine {HOST}\nlogin me\npassword ") and done.stdout.endswith("\nfine")
    assert REAL not in done.stdout, done.stderr
    assert sent(world, "authorization") == "Basic " + base64.b64encode(f"me:{REAL}".encode()).decode()


def test_the_masked_file_cannot_be_written_or_read_under_another_name(project: Path, world: World) -> None:
    file = project / "secret.txt"
    file.write_text(f"key={REAL}\n")
    os.link(file, project / "other-name")
    entry = {"path": "secret.txt", "mode": "mask", "extract": "key=(.+)"}
    asked = settings(world, credentials={"files": [entry]}, filesystem={"allowWrite": ["."]})
    done = srt(project, "-c", "cat secret.txt other-name; echo x > secret.txt; mv secret.txt moved", settings=asked)
    assert done.stdout.startswith("key=") and REAL not in done.stdout and file.read_text() == f"key={REAL}\n"


def test_a_pattern_is_read_as_javascript_reads_it(project: Path, world: World) -> None:
    (project / "x").write_bytes(f"key={REAL}\r\nnext\r\n".encode())
    entry = {"path": "x", "mode": "mask", "extract": "key=(?<value>.+)"}
    done = srt(project, "cat", "x", settings=settings(world, credentials={"files": [entry]}))
    assert done.stdout.startswith("key=") and done.stdout.endswith("\nnext\n") and REAL not in done.stdout


@pytest.mark.parametrize(
    ("text", "part"),
    [("a" * 60 + "!", {"extract": "^(a+)+$"}), ("eyJ" * 300_000, {"decode": "jwt"})],
    ids=["a pattern", "our own"],
)
def test_a_search_that_would_not_end_is_an_error(project: Path, world: World, text: str, part: dict[str, str]) -> None:
    (project / "x").write_text(text)
    entry = {"path": "x", "mode": "mask", **part}
    done = srt(project, "cat", "x", settings=settings(world, credentials={"files": [entry]}))
    assert done.returncode == 1 and "credentials.files: the search for what to mask takes" in done.stderr
    assert done.stdout == ""


def test_more_matches_than_anybody_has_secrets_are_an_error(project: Path, world: World) -> None:
    (project / "x").write_text("key=value-of-a-key\n" * 2000)
    entry = {"path": "x", "mode": "mask", "extract": "key=(.+)"}
    done = srt(project, "cat", "x", settings=settings(world, credentials={"files": [entry]}))
    assert done.returncode == 1 and "more than 1000 matches" in done.stderr and done.stdout == ""


def test_a_pattern_that_finds_one_secret_within_another_shows_neither(project: Path, world: World) -> None:
    (project / "x").write_text(f"<{REAL}> the end\n")
    entry = {"path": "x", "mode": "mask", "extract": f"(?=({REAL}|{REAL[2:12]}))."}
    done = srt(project, "cat", "x", settings=settings(world, credentials={"files": [entry]}))
    assert done.stdout.startswith("<") and done.stdout.endswith("> the end\n"), done.stderr
    assert REAL[12:] not in done.stdout


def test_what_a_tenant_left_at_a_masked_files_place_neither_holds_a_start_nor_opens_what_is_denied(
    project: Path, world: World
) -> None:
    hidden = project.parent / "home" / "hidden"
    hidden.mkdir()
    (hidden / "file").write_text("key=something-else\nprivate\n")
    os.mkfifo(project / "pipe")
    os.symlink(hidden / "file", project / "link")
    entries = [{"path": name, "mode": "mask", "extract": "key=(.+)"} for name in ("pipe", "link")]
    asked = settings(
        world, credentials={"files": entries}, filesystem={"denyRead": [str(hidden / "file")], "allowWrite": ["."]}
    )
    done = srt(project, "-c", f"cat link {hidden}/file; echo fine", settings=asked)
    assert done.stdout == "fine\n"


@pytest.mark.parametrize(("said", "hidden"), [(None, True), ("deny", True), ("warn", False)])
def test_where_nothing_is_found_to_mask_the_file_is_hidden_unless_said_otherwise(
    project: Path, world: World, said: str | None, hidden: bool
) -> None:
    file = project / "x"
    file.write_text("there is no key here\n")
    entry = {"path": str(file), "mode": "mask", "extract": "key=(.+)", **({"onExtractNoMatch": said} if said else {})}
    done = srt(project, "cat", "x", settings=settings(world, credentials={"files": [entry]}))
    assert (done.stdout == "") is hidden and "nothing in it was found to mask" in done.stderr
    entry["onExtractNoMatch"] = "error"
    done = srt(project, "cat", "x", settings=settings(world, credentials={"files": [entry]}))
    assert done.returncode == 1 and "credentials.files" in done.stderr and done.stdout == ""


def test_a_part_of_a_variable_is_masked(project: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE", f"https://me:{REAL}@{HOST}/v1")
    entry = {"name": "SERVICE", "mode": "mask", "extract": "me:(.+)@"}
    asked = settings(world, credentials={"envVars": [entry, {"name": "NOT_SET", "mode": "mask"}]})
    done = srt(project, "-c", 'echo "$SERVICE ${NOT_SET-none}"; curl -sS "$SERVICE"', settings=asked)
    assert done.stdout.startswith("https://me:") and f"@{HOST}/v1 none\nfine" in done.stdout and REAL not in done.stdout
    assert sent(world, "authorization") == "Basic " + base64.b64encode(f"me:{REAL}".encode()).decode()


def test_a_masked_value_also_goes_into_bodies(project: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", REAL)
    asked = settings(world, credentials={"envVars": [{"name": "TOKEN", "mode": "mask"}]})
    done = srt(project, "-c", f'curl -sS --data "token=$TOKEN" https://{HOST}/', settings=asked)
    assert done.stdout == "fine" and world.seen[-1]["body"] == f"token={REAL}".encode()


def test_claims_of_a_token_are_masked_and_the_others_stay(
    project: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = jwt({"iss": "somebody", "email": "me@example.com", "key": REAL})
    monkeypatch.setenv("TOKEN", token)
    entry = {"name": "TOKEN", "mode": "mask", "decode": "jwt", "maskClaims": ["key", "absent"]}
    asked = settings(world, credentials={"envVars": [entry]})
    done = srt(
        project, "-c", f'echo $TOKEN; curl -sS -H "Authorization: Bearer $TOKEN" https://{HOST}/', settings=asked
    )
    inside = claims_of(done.stdout.split("\n")[0])
    assert inside["iss"] == "somebody" and inside["email"] == "me@example.com" and inside["key"] != REAL
    assert sent(world, "authorization") == f"Bearer {token}"
    done = srt(project, "-c", f'curl -sS -H "X-Key: {inside["key"]}" https://{HOST}/', settings=asked)
    assert done.stdout == "fine" and sent(world, "x-key") == REAL


def test_response_headers_can_be_withheld(project: Path, world: World) -> None:
    asked = settings(world, {"stripResponseHeaders": ["set_cookie"]})
    shown = srt(project, "curl", "-sSi", f"https://{HOST}/", settings=asked).stdout.lower()
    assert "x-other: 1" in shown and "cookie" not in shown


def test_the_authority_can_be_ones_own_and_its_key_cannot_be_read(project: Path, world: World) -> None:
    key, certificate = project.parent / "home" / "key.pem", project.parent / "home" / "cert.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*argv, "-days", "2", "-subj", "/CN=my own authority"], check=True, capture_output=True)
    asked = settings(world, {"tlsTerminate": {"caCertPath": str(certificate), "caKeyPath": str(key)}})
    done = srt(project, "-c", f"curl -sSv https://{HOST}/; cat {key}", settings=asked)
    assert "fine" in done.stdout and "my own authority" in done.stderr and "PRIVATE" not in done.stdout
    alone = settings(world, {"tlsTerminate": {"caCertPath": str(certificate)}})
    assert "must be provided together" in srt(project, "true", settings=alone).stderr
    os.rename(certificate, f"{certificate}.away")
    assert srt(project, "true", settings=asked).returncode == 1


def test_a_program_trusts_further_authorities_itself_where_nobody_looks(project: Path, world: World) -> None:
    asked = settings(world, {"tlsTerminate": {"excludeDomains": [HOST]}})
    done = srt(project, "curl", "-sSv", f"https://{HOST}/", settings=asked)
    assert done.stdout == "fine" and "test origin authority" in done.stderr


class Socks:
    """A SOCKS5 proxy that hands every connection to one port."""

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        client.recv(3)
        client.sendall(b"\5\0")
        head = client.recv(300)
        name = head[5 : 5 + head[4]].decode()
        self.asked.append(name)
        upstream = socket.create_connection(("127.0.0.1", self._port))
        upstream.sendall(f"CONNECT {name}:443 HTTP/1.1\r\n\r\n".encode())
        upstream.recv(4096)
        client.sendall(b"\5\0\0\1\0\0\0\0\0\0")
        threading.Thread(target=self._copy, args=(upstream, client), daemon=True).start()
        self._copy(client, upstream)

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either end may go first
            while data := one.recv(65536):
                other.sendall(data)


def test_a_socks_proxy_carries_connections(project: Path, world: World) -> None:
    proxy = Socks(world.port)
    asked = settings(world, {"socksProxyPort": proxy.port})
    del asked["network"]["httpProxyPort"]
    assert srt(project, "curl", "-sS", f"https://{HOST}/", settings=asked).stdout == "fine"
    assert proxy.asked == [HOST]


class UnixProxy:
    """The world's proxy, on a Unix socket."""

    def __init__(self, path: str, port: int) -> None:
        self._port = port
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self._port))
            for one, other in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_connections_to_some_hosts_go_through_ones_own_proxy_on_a_unix_socket(project: Path, world: World) -> None:
    other, refused = "other.example.com", "refused.example.com"
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as place, UnixProxy(f"{place}/proxy", world.port):
        network = {
            "allowedDomains": [HOST, other], "deniedDomains": [],
            "mitmProxy": {"socketPath": f"{place}/proxy", "domains": [HOST, refused]},
            "parentProxy": {"http": "http://127.0.0.1:1"},
        }  # fmt: skip
        before = len(world.hosts)
        ask = f"curl -s --cacert {world.pki.file} https://{{}}/"
        done = srt(project, "-c", ask.format(HOST), settings={"network": network})
        assert (done.stdout, world.hosts[before:]) == ("fine", [HOST]), done.stderr
        for host in (other, refused):
            assert "fine" not in srt(project, "-c", ask.format(host), settings={"network": network}).stdout
        direct = f"curl -s --unix-socket {place}/proxy http://{other}/"
        assert srt(project, "-c", direct, settings={"network": network}).returncode != 0
        assert world.hosts[before:] == [HOST]


def test_the_persons_own_proxy_variables_are_used_for_the_way_out(
    project: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{world.port}")
    asked = settings(world)
    del asked["network"]["httpProxyPort"]
    assert srt(project, "curl", "-sS", "--noproxy", "*", f"https://{HOST}/", settings=asked).stdout == "fine"
