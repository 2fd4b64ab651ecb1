"""Logins in real sandboxes: what a program inside has, sends and gets, in one run and the next."""

from __future__ import annotations

import base64
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from sandbox.errors import ConfigError
from sandbox.sandbox import Sandbox
from tests.network.credentials.oauth import token
from tests.network.lab import Pki
from tests.network.room import LOCAL, Walls, walled  # noqa: F401

pytestmark = pytest.mark.walls

API, AUTH = "api.example.com", "auth.example.com"


class Server:
    """api.example.com and auth.example.com, over TLS: remembers what it got, and grants each refresh token once."""

    def __init__(self, directory: Path) -> None:
        self.pki = Pki(directory)
        self.seen: list[dict[str, Any]] = []
        self.number = 1
        self.good = {token("ort", 1)}
        self.before_answer: Callable[[], None] = lambda: None
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.seen.append({"path": self.path, "headers": dict(self.headers), "host": self.headers["Host"]})
                ok = "Basic" in (self.headers["Authorization"] or "") or "/info/refs" not in self.path
                self.answer(200 if ok else 401, json.dumps(dict(self.headers)).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
                status, said = server.granted(dict(parse_qsl(body.decode())))
                server.before_answer()
                self.answer(status, json.dumps(said).encode())

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if status == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context: ssl.SSLContext = self.pki.server_context([API, AUTH, "github.test"], ["http/1.1"])
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def granted(self, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if asked.get("grant_type") != "authorization_code":
            if asked.get("refresh_token") not in self.good:
                return 400, {"error": "invalid_grant"}
            self.good.discard(asked["refresh_token"])
        self.number += 1
        self.good.add(token("ort", self.number))
        access, refresh = token("oat", self.number), token("ort", self.number)
        return 200, {"access_token": access, "refresh_token": refresh, "expires_in": 3600}

    def authorization(self) -> str:
        return str(self.seen[-1]["headers"].get("Authorization"))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path)
    yield one
    one.close()


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, with a login in it."""
    home = tmp_path / "person"
    (home / ".claude").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("ANTHROPIC_API_KEY", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    save(home)
    return home


def save(home: Path, number: int = 1) -> None:
    oauth = {"accessToken": token("oat", number), "refreshToken": token("ort", number), "expiresAt": 1}
    (home / ".claude" / ".credentials.json").write_text(json.dumps({"claudeAiOauth": oauth}, indent=2))
    (home / ".claude" / ".credentials.json").chmod(0o600)


def entry(server: Server, **more: Any) -> dict[str, Any]:
    place = f":{server.port}"
    return {
        "file": "~/.claude/.credentials.json",
        "fields": {
            "claudeAiOauth.accessToken": {"kind": "access", "hosts": [API + place]},
            "claudeAiOauth.refreshToken": {"kind": "refresh", "hosts": [AUTH + place]},
        },
        "refresh": {"hosts": [AUTH + place], "paths": ["/oauth/token"], "expires": "claudeAiOauth.expiresAt"},
        **more,
    }


@pytest.fixture
def room(walled: Walls, server: Server, person: Path) -> Callable[..., Sandbox]:  # noqa: F811
    """Makes sandboxes with credentials, for the server's hosts."""

    def make(credentials: dict[str, Any] | None = None, **more: Any) -> Sandbox:
        given = walled(
            names={API: ["127.0.0.1"], AUTH: ["127.0.0.1"], "github.test": ["127.0.0.1"]},
            allowed_hosts=[f"{API}:{server.port}", f"{AUTH}:{server.port}", f"github.test:{server.port}", *LOCAL],
            ca_certificates=[server.pki.file],
            more={"credentials": credentials or {"claude": entry(server)}, **more},
        )
        return given.sandbox

    return make


PROGRAM = """
import json, os, sys, urllib.request, urllib.parse
path = os.path.expanduser("~/.claude/.credentials.json")
data = json.load(open(path))
def ask(url, headers={}, body=None):
    request = urllib.request.Request(url, headers=headers, data=body)
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as problem:
        return {"status": problem.code, "text": problem.read().decode()}
def save():
    with open(path + ".tmp", "w") as file:
        json.dump(data, file)
    os.replace(path + ".tmp", path)
def refresh(url):
    fields = {"grant_type": "refresh_token", "refresh_token": data["claudeAiOauth"]["refreshToken"]}
    said = ask(url, body=urllib.parse.urlencode(fields).encode())
    if "access_token" in said:
        data["claudeAiOauth"].update(accessToken=said["access_token"], refreshToken=said["refresh_token"])
        save()
    return said
"""


def run(sandbox: Sandbox, code: str) -> str:
    done = sandbox.exec(["/usr/bin/python3", "-c", PROGRAM + code], timeout=60)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_a_program_logs_in_renews_and_saves_and_never_has_a_token(
    room: Callable[..., Sandbox], server: Server, person: Path
) -> None:
    sandbox = room()
    api, auth = f"https://{API}:{server.port}", f"https://{AUTH}:{server.port}"
    use = f'print(ask("{api}/v1", {{"Authorization": "Bearer " + data["claudeAiOauth"]["accessToken"]}}))'
    out = run(sandbox, use)
    assert server.authorization() == f"Bearer {token('oat', 1)}" and token("oat", 1) not in out
    out = run(sandbox, f'print(refresh("{auth}/oauth/token"))')
    assert b"refresh_token=" + token("ort", 1).encode() in server.seen[-1]["body"]
    out += run(sandbox, use)
    assert server.authorization() == f"Bearer {token('oat', 2)}"
    out += sandbox.exec("cat ~/.claude/.credentials.json; ls -l ~/.claude").stdout
    assert not any(token(kind, number) in out for kind in ("oat", "ort") for number in (1, 2))
    there = json.loads((person / ".claude" / ".credentials.json").read_text())["claudeAiOauth"]
    assert there["refreshToken"] == token("ort", 2) and there["expiresAt"] > 10**12
    word = json.loads(sandbox.exec("cat ~/.claude/.credentials.json").stdout)["claudeAiOauth"]["accessToken"]
    sandbox.close()
    again = room()  # the next run: the same placeholders, the new tokens
    now = json.loads(again.exec("cat ~/.claude/.credentials.json").stdout)["claudeAiOauth"]
    assert now["accessToken"] == word
    run(again, use)
    assert server.authorization() == f"Bearer {token('oat', 2)}"
    assert "token" in run(again, f'print(refresh("{auth}/oauth/token"))')
    assert server.good == {token("ort", 3)}


def test_the_first_login_made_inside_ends_with_its_tokens_outside(
    room: Callable[..., Sandbox], server: Server, person: Path
) -> None:
    """Nobody has logged in, so there is no secret yet that would make the gate look into connections."""
    (person / ".claude" / ".credentials.json").unlink()
    program = PROGRAM.replace("data = json.load(open(path))", "data = {}")
    api, auth = f"https://{API}:{server.port}", f"https://{AUTH}:{server.port}"
    log_in = f"""
said = ask("{auth}/oauth/token", body=b"grant_type=authorization_code&code=c")
print(said)
print(ask("{api}/v1", {{"Authorization": "Bearer " + said["access_token"]}}))"""
    done = room().exec(["/usr/bin/python3", "-c", program + log_in], timeout=60)
    assert done.exit_code == 0, done.stderr
    assert server.authorization() == f"Bearer {token('oat', 2)}"
    assert token("oat", 2) not in done.stdout and token("ort", 2) not in done.stdout
    run(room(), f'ask("{api}/v1", {{"Authorization": "Bearer " + data["claudeAiOauth"]["accessToken"]}})')
    assert server.authorization() == f"Bearer {token('oat', 2)}"  # in the next run, too


def test_no_token_is_on_disk_but_in_the_persons_file(
    room: Callable[..., Sandbox], server: Server, person: Path, tmp_path: Path
) -> None:
    sandbox = room()
    run(sandbox, f'print(refresh("https://{AUTH}:{server.port}/oauth/token"))')
    run(sandbox, f'print(refresh("https://{AUTH}:{server.port}/echo"))')
    words = [token(kind, number).encode() for kind in ("oat", "ort") for number in (1, 2)]
    holding = []
    for place, _, files in os.walk(tmp_path):
        for name in files:
            if not (Path(place) / name).is_file():
                continue
            content = (Path(place) / name).read_bytes()
            holding += [f"{place}/{name}" for word in words if word in content]
    assert set(holding) == {str(person / ".claude" / ".credentials.json")}
    command = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
    assert not any(word in one.read_bytes() for one in command if one.exists() for word in words)


@pytest.mark.parametrize("shown", ["allow_read", "allow_write"])
def test_the_persons_file_is_out_of_reach_also_where_its_directory_is_shown(
    room: Callable[..., Sandbox], server: Server, person: Path, shown: str
) -> None:
    """Under a name that no pattern blocks."""
    (person / ".tool").mkdir()
    (person / ".tool" / "settings.json").write_text("{}")
    mine = person / ".tool" / "auth.json"
    mine.write_text((person / ".claude" / ".credentials.json").read_text())
    sandbox = room({"tool": entry(server, file="~/.tool/auth.json")}, filesystem={shown: ["~/.tool"]})
    out = sandbox.exec("cat ~/.tool/settings.json ~/.tool/auth.json; ls -la ~/.tool").stdout
    assert token("oat", 1) not in out and token("ort", 1) not in out
    assert "sk-ant-oat01-" in out  # the same file, with placeholders
    assert json.loads(mine.read_text())["claudeAiOauth"]["expiresAt"] == 1
    code = PROGRAM.replace(".claude/.credentials.json", ".tool/auth.json").replace("        save()", "")
    code += f'print(refresh("https://{AUTH}:{server.port}/oauth/token"))'
    # Somebody inside tries to read every new name in the directory while the file is replaced.
    watch = "touch /tmp/watching; while [ ! -e /tmp/over ]; do grep -hs 01-0002 ~/.tool/* >> /tmp/found; done"
    watcher = threading.Thread(target=sandbox.exec, args=(["sh", "-c", watch],))
    watcher.start()
    sandbox.exec("until [ -e /tmp/watching ]; do :; done", timeout=30)
    assert "access_token" in sandbox.exec(["/usr/bin/python3", "-c", code]).stdout
    sandbox.exec("touch /tmp/over")
    watcher.join()
    out = sandbox.exec(["sh", "-c", "cat /tmp/found ~/.tool/auth.json ~/.tool/*"]).stdout
    assert token("oat", 2) not in out and token("ort", 2) not in out
    assert token("ort", 2) in mine.read_text()


def test_the_users_file_is_covered_even_when_the_kept_one_is_elsewhere(
    room: Callable[..., Sandbox], server: Server, person: Path
) -> None:
    (person / ".tool").mkdir()
    mine = person / ".tool" / "auth.json"
    mine.write_text((person / ".claude" / ".credentials.json").read_text())
    os.link(mine, person / ".tool" / "another-name")
    given = entry(server, file="~/.tool/auth.json", at="~/.elsewhere/auth.json")
    sandbox = room({"tool": given}, filesystem={"allow_read": ["~/.tool"]})
    out = sandbox.exec("cat ~/.tool/* ~/.elsewhere/auth.json; cp ~/.tool/* /tmp; cat /tmp/*").stdout
    assert token("oat", 1) not in out and "sk-ant-oat01-" in out


def test_an_unusable_part_of_a_login_is_reported_and_stops_nothing(
    room: Callable[..., Sandbox], server: Server, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy")
    (person / ".claude" / ".credentials.json").write_text("{ no json " + token("oat", 1))
    sandbox = room({"claude": {}})
    assert sandbox.exec("echo ${ANTHROPIC_API_KEY-unset}; ls -A ~").stdout == "unset\n"
    told = "\n".join(sandbox.notices)
    assert "ANTHROPIC_API_KEY is not set inside: its value is too short" in told
    assert ".credentials.json' is not json" in told and token("oat", 1) not in told


def test_a_variable_with_a_key_is_a_placeholder_of_its_shape_and_the_same_in_every_run(
    room: Callable[..., Sandbox], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-ant-api03-" + "Z9y" * 31
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    hosts = [f"{API}:{server.port}"]
    given = {"key": {"variables": {"ANTHROPIC_API_KEY": {"hosts": hosts}, "NOT_SET": {"hosts": hosts}}}}
    seen = []
    for _ in range(2):
        sandbox = room(given)
        seen.append(sandbox.exec("echo $ANTHROPIC_API_KEY-${NOT_SET-unset}").stdout.strip())
        url = f"https://{API}:{server.port}/v1"
        sandbox.exec(["sh", "-c", f'curl -sS {url} -H "x-api-key: $ANTHROPIC_API_KEY"'])
        assert server.seen[-1]["headers"]["x-api-key"] == key
        sandbox.close()
    assert seen[0] == seen[1]
    assert seen[0].startswith("sk-ant-api03-") and seen[0].endswith("-unset") and key not in seen[0]


GH = "github.test:\n    user: me\n    oauth_token: gho_RealToken0123456789abcdefghijkl\n"


def test_git_over_https_sends_the_token_that_gh_has(room: Callable[..., Sandbox], server: Server, person: Path) -> None:
    (person / ".config" / "gh").mkdir(parents=True)
    (person / ".config" / "gh" / "hosts.yml").write_text(GH)
    place = f":{server.port}"
    given = {
        "file": "~/.config/gh/hosts.yml",
        "format": "yaml",
        "fields": {"*.oauth_token": {"kind": "access", "hosts": [f"{{host}}{place}"]}},
        "keep": ["*.user"],
        "git": [f"github.test{place}"],
    }
    sandbox = room({"github": given})
    out = sandbox.exec("cat ~/.config/gh/hosts.yml; git config --list --show-origin").stdout
    assert "user: me" in out and "gho_" in out and "RealToken" not in out
    sandbox.exec(["sh", "-c", f"GIT_TERMINAL_PROMPT=0 git ls-remote https://github.test{place}/me/x.git"])
    sent = server.authorization().removeprefix("Basic ")
    assert base64.b64decode(sent) == b"x-access-token:gho_RealToken0123456789abcdefghijkl"


def test_npm_pip_and_netrc_tokens_stay_outside(room: Callable[..., Sandbox], server: Server, person: Path) -> None:
    host = f"{API}:{server.port}"
    (person / ".npmrc").write_text(
        f"registry=https://{host}/\n//{host}/:_authToken=npm_RealToken0123456789abcdefghijkl\n"
    )
    (person / ".netrc").write_text(f"machine {API} login me password netrc-Real-password-1\n")
    (person / ".config" / "pip").mkdir(parents=True)
    (person / ".config" / "pip" / "pip.conf").write_text(
        f"[global]\nindex-url = https://me:pip-Real-pw-12@{host}/simple\n"
    )
    (person / ".pypirc").write_text("[pypi]\nusername = __token__\npassword = pypi-AgRealToken0123456789\n")
    netrc = {"use": "netrc", "fields": {"*.password": {"kind": "password", "hosts": [f"{{host}}:{server.port}"]}}}
    sandbox = room({"npm": {}, "pip": {}, "pypi": {}, "netrc": netrc})
    out = sandbox.exec("cat ~/.npmrc ~/.netrc ~/.config/pip/pip.conf ~/.pypirc").stdout
    assert "Real" not in out and "__token__" in out and f"registry=https://{host}/" in out
    sandbox.exec(["sh", "-c", f"curl -sS --netrc https://{host}/netrc"])
    assert base64.b64decode(server.authorization().removeprefix("Basic ")) == b"me:netrc-Real-password-1"
    sandbox.exec(["sh", "-c", "/usr/bin/python3 -m pip download --no-deps nothing -d /tmp 2>&1; npm view nothing 2>&1"])
    fetch = 'curl -sS $(sed -n "s/index-url = //p" ~/.config/pip/pip.conf)/nothing/'
    sandbox.exec(["sh", "-c", fetch])
    assert base64.b64decode(server.authorization().removeprefix("Basic ")) == b"me:pip-Real-pw-12"
    send = f'curl -sS https://{host}/n -H "Authorization: Bearer $(sed -n s/.*_authToken=//p ~/.npmrc)"'
    sandbox.exec(["sh", "-c", send])
    assert server.authorization() == "Bearer npm_RealToken0123456789abcdefghijkl"


def test_a_person_who_has_not_logged_in_gets_a_sandbox_anyway(room: Callable[..., Sandbox], person: Path) -> None:
    (person / ".claude" / ".credentials.json").unlink()
    sandbox = room({"claude": {}, "codex": {}, "gemini": {}, "npm": {}})
    assert sandbox.exec("ls -A ~").stdout == ""


def test_where_the_home_is_the_project_the_persons_files_stay_as_they_are(
    room: Callable[..., Sandbox], person: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (person / ".npmrc").write_text(f"//{API}/:_authToken=npm_RealToken0123456789abcdefghijkl\n")
    monkeypatch.chdir(person)
    for more in ({}, {"overlay": True}):
        sandbox = room({"claude": entry(server), "npm": {}}, filesystem={"root": str(person), **more})
        out = sandbox.exec("cat ~/.npmrc ~/.claude/.credentials.json").stdout
        assert "npm_" in out and "sk-ant-oat01" in out
        assert "Real" not in out and token("oat", 1) not in out
        sandbox.close()
        assert "Real" in (person / ".npmrc").read_text()
        assert token("oat", 1) in (person / ".claude" / ".credentials.json").read_text()
        assert sorted(os.listdir(person)) == [".claude", ".npmrc"]
    with pytest.raises(ConfigError, match="choose another place"):
        room({"claude": entry(server, at="~/new.json")}, filesystem={"root": str(person)})
    assert sorted(os.listdir(person)) == [".claude", ".npmrc"]


def test_what_an_earlier_tenant_left_in_its_place_stops_nothing(
    room: Callable[..., Sandbox], person: Path, tmp_path: Path
) -> None:
    from sandbox.network.credentials.credential_files import Furnishing

    sandbox = room()
    sandbox.exec("rm ~/.claude/.credentials.json; mkdir -p ~/.claude/.credentials.json/full/of/files")
    furnishing = Furnishing(sandbox._logins, sandbox._plan, lambda path: [])  # type: ignore[arg-type]
    furnishing.write(sandbox)
    assert "sk-ant-oat01" in sandbox.exec("cat ~/.claude/.credentials.json").stdout
    sandbox.exec("ln -sf /etc/passwd ~/.claude/.credentials.json")
    furnishing.write(sandbox)
    assert "sk-ant-oat01" in sandbox.exec("cat ~/.claude/.credentials.json").stdout
    assert "sk-ant" not in sandbox.exec("cat /etc/passwd").stdout


KILLED = """
import os, sys
from sandbox.network.credentials import credential_store
real = os.rename
def rename(old, new):
    if "credentials.json" in new:
        os._exit(9)
    real(old, new)
os.rename = rename
"""


@pytest.mark.parametrize("moment", ["before the file is replaced", "before the answer"])
def test_an_owner_that_is_killed_in_the_middle_of_a_renewal_leaves_a_whole_file(
    server: Server, person: Path, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "sandbox-home"))
    config = {
        "filesystem": {"root": str(tmp_path / "project")},
        "network": {
            "allowed_hosts": [f"{AUTH}:{server.port}", "127.0.0.1"],
            "ca_certificates": [server.pki.file],
        },
        "credentials": {"claude": entry(server)},
    }
    code = PROGRAM + f'print(refresh("https://{AUTH}:{server.port}/oauth/token"))'
    owner = f"""
{KILLED if moment == "before the file is replaced" else ""}
import json, sys
from sandbox.sandbox import Sandbox
sandbox = Sandbox(json.loads(sys.argv[1]), resolve=lambda host, port: ["127.0.0.1"])
print("ready", flush=True)
print(sandbox.exec(["/usr/bin/python3", "-c", sys.argv[2]], timeout=30))
"""
    before = (person / ".claude" / ".credentials.json").read_text()
    process = subprocess.Popen([sys.executable, "-c", owner, json.dumps(config), code], stdout=subprocess.PIPE)
    if moment == "before the answer":
        server.before_answer = process.kill
    process.communicate(timeout=60)
    assert process.returncode in (9, -9)
    assert (person / ".claude" / ".credentials.json").read_text() == before  # old, and whole
    # The lock has gone with its owner: the next one renews, and the person is logged in.
    server.before_answer = lambda: None
    server.good = {token("ort", 1)}
    one = Sandbox(config, resolve=lambda host, port: ["127.0.0.1"])
    try:
        assert "access_token" in run(one, f'print(refresh("https://{AUTH}:{server.port}/oauth/token"))')
    finally:
        one.close()
    assert token("ort", server.number) in (person / ".claude" / ".credentials.json").read_text()
