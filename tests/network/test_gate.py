"""What a tenant reaches through the gate, and what it does not, in a real sandbox."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.network.room import LOCAL, Listen, Origin, Walls, echo
from tests.patience import assert_given_back, open_descriptors
from tests.ports import refusing_port, unused_port

pytestmark = pytest.mark.walls


# -- allowed


def test_curl_reaches_an_allowed_host_and_the_event_says_so(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    result = room.run(f"curl -sS http://good.test:{origin.port}/x")
    assert result.stdout == f"GET /x for good.test:{origin.port}\n"
    event = room.heard.wait(lambda one: one["status_code"] == 200)
    assert event["url"] == f"tcp://good.test:{origin.port}" and event["method"] == "CONNECT"
    assert not event["blocked"] and event["response_bytes"] > 30 and event["rule"] == "network.allowed_hosts: good.test"
    assert room.heard.records[-1]["result"] == "allowed"


def test_ipv6_leads_there_too(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    assert "GET /six" in room.run(f"curl -6 -sS http://GOOD.test.:{origin.port}/six").stdout


def test_python_reaches_it(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["*.test", *LOCAL])
    code = f"import urllib.request as u; print(u.urlopen('http://good.test:{origin.port}/py').read())"
    assert "GET /py" in room.python(code).stdout


def test_node_reaches_it(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    code = f"fetch('http://good.test:{origin.port}/js').then(r => r.text()).then(console.log)"
    result = room.run("node", "-e", code)
    assert "GET /js" in result.stdout, result.stderr


def test_git_clones_over_http(walled: Walls, tmp_path: Path) -> None:
    source = tmp_path / "served" / "source"
    source.mkdir(parents=True)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(source)]
    subprocess.run([*git, "init", "-q"], check=True)
    (source / "file").write_text("content")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    subprocess.run([*git, "update-server-info"], check=True)
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(source.parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().split()[5]
            room = walled(names={"git.test": LOCAL}, allowed_hosts=["git.test", *LOCAL], allow_git=True)
            result = room.run(f"cd /tmp && git clone -q http://git.test:{port}/source/.git copy && cat copy/file")
            assert result.stdout == "content", result.stderr
        finally:
            server.kill()


def test_a_raw_socket_that_knows_nothing_of_proxies_reaches_it(walled: Walls, listener: Listen) -> None:
    room = walled(names={"raw.test": LOCAL}, allowed_hosts=["raw.test", *LOCAL])
    port = listener(echo).port
    code = f"""
import socket
s = socket.create_connection(('raw.test', {port}))
s.sendall(b'\\x00\\xffhello'); s.shutdown(socket.SHUT_WR)
print(b''.join(iter(lambda: s.recv(100), b'')))"""
    assert room.python(code).stdout == "b'\\x00\\xffhello'\n"


def test_a_server_may_speak_first(walled: Walls, listener: Listen) -> None:
    room = walled(names={"smtp.test": LOCAL}, allowed_hosts=["smtp.test", *LOCAL])
    port = listener(lambda client: client.sendall(b"220 ready\r\n")).port
    assert room.python(f"import socket; print(socket.create_connection(('smtp.test', {port})).recv(99))").stdout == (
        "b'220 ready\\r\\n'\n"
    )


def test_redis_works_as_raw_tcp(walled: Walls, tmp_path: Path) -> None:
    port = unused_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    # Under its other name, which comes without a package that starts a server on the machine for good.
    program = shutil.which("redis-check-rdb")
    with subprocess.Popen(command, executable=program, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert any("Ready to accept" in line for line in server.stdout)
            room = walled(names={"db.test": LOCAL}, allowed_hosts=[f"db.test:{port}", *LOCAL])
            result = room.run(f"redis-cli -h db.test -p {port} set k v && redis-cli -h db.test -p {port} get k")
            assert result.stdout == "OK\nv\n", result.stderr
        finally:
            server.kill()


@pytest.fixture(scope="module")
def postgresql() -> Iterator[int]:
    """The port of a PostgreSQL server on the loopback, with a user `app` that needs no password."""
    programs = max(Path("/usr/lib/postgresql").iterdir(), key=lambda version: int(version.name)) / "bin"
    # It refuses to be root: then it is nobody, in a place that nobody can reach.
    root = os.geteuid() == 0
    who: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if root else {}
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        if root:
            shutil.chown(place, "nobody", "nogroup")
        create = [f"{programs}/initdb", "-D", f"{place}/data", "-U", "app", "-A", "trust", "--no-sync", "--no-locale"]
        subprocess.run(create, check=True, capture_output=True, cwd="/", **who)
        port = unused_port()
        serve = [f"{programs}/postgres", "-D", f"{place}/data", "-p", str(port), "-c", "fsync=off",
                 "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]  # fmt: skip
        with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True, cwd="/", **who) as server:
            try:
                assert server.stderr is not None and any("ready to accept" in line for line in server.stderr)
                yield port
            finally:
                server.send_signal(signal.SIGQUIT)  # "immediate": its children end too


SELECT = "psql -h {} -p {} -U app -d postgres -Atc 'select 6 * 7'"


def test_postgresql_works_as_raw_tcp_where_it_is_allowed(walled: Walls, postgresql: int) -> None:
    room = walled(names={"db.test": LOCAL}, allowed_hosts=[f"db.test:{postgresql}", *LOCAL])
    result = room.run(SELECT.format("db.test", postgresql))
    assert result.stdout == "42\n", result.stderr
    assert room.heard.wait(lambda one: f"db.test:{postgresql}" in one["url"])["blocked"] is False


def test_postgresql_is_out_of_reach_where_it_is_not(walled: Walls, postgresql: int) -> None:
    room = walled(names={"db.test": LOCAL}, allowed_hosts=["db.test:1", "other.test", *LOCAL])
    assert room.run(SELECT.format("db.test", postgresql)).exit_code != 0
    assert room.heard.blocked(f"db.test:{postgresql}")
    assert room.run(SELECT.format("127.0.0.1", postgresql)).exit_code != 0


def test_a_lent_port_leads_to_postgresql_on_the_hosts_loopback(walled: Walls, postgresql: int) -> None:
    room = walled(localhost_ports=[postgresql])
    for host in ("127.0.0.1", "localhost", "host.sandbox.internal"):
        result = room.run(SELECT.format(host, postgresql))
        assert result.stdout == "42\n", result.stderr


def test_git_clones_over_ssh_from_a_host_it_knows_and_from_no_other(walled: Walls, tmp_path: Path) -> None:
    source = tmp_path / "source"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(source)]
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    (source / "file").write_text("over ssh")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "authorized").write_text((tmp_path / "user.pub").read_text())
    port = unused_port()
    settings = {"HostKey": tmp_path / "host", "AuthorizedKeysFile": tmp_path / "authorized", "StrictModes": "no",
                "UsePAM": "no", "PidFile": "none", "ListenAddress": "127.0.0.1"}  # fmt: skip
    (tmp_path / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # root's sshd wants an empty directory to be nobody in
    command = ["/usr/sbin/sshd", "-D", "-e", "-p", str(port), "-f", str(tmp_path / "sshd_config")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None and any("listening" in line for line in server.stderr)
            room = walled(names={"git.test": LOCAL}, allowed_hosts=[f"git.test:{port}", *LOCAL])
            known = f"[git.test]:{port} {(tmp_path / 'host.pub').read_text()}"
            room.sandbox.write_file("/tmp/known", known)
            room.sandbox.write_file("/tmp/key", (tmp_path / "user").read_text(), mode=0o600)
            user = pwd.getpwuid(os.getuid()).pw_name
            clone = (
                "cd /tmp && GIT_SSH_COMMAND='ssh -i /tmp/key -o BatchMode=yes -o UserKnownHostsFile=/tmp/{}' "
                f"git clone -q ssh://{user}@git.test:{port}{source} copy && cat copy/file"
            )
            assert "Host key verification failed" in room.run(clone.format("empty")).stderr
            result = room.run(clone.format("known"))
            assert result.stdout == "over ssh", result.stderr
        finally:
            server.kill()


# -- refused


def test_a_name_that_is_not_listed_is_refused_in_words_and_recorded(walled: Walls) -> None:
    room = walled(allowed_hosts=["good.test"])
    assert "add 'evil.test' to network.allowed_hosts" in room.run("curl -sS http://evil.test/").stdout
    assert room.asked == []
    event = room.heard.blocked("evil.test")
    assert event["rule"] == "network.allowed_hosts" and "add 'evil.test'" in event["reason"]
    entry = room.heard.records[0]
    assert (entry["type"], entry["severity"], entry["result"]) == ("policy_decision", "warn", "blocked")
    assert entry["reason"] == event["reason"]
    assert len(room.heard.records) == len(room.heard.events) == 1


def test_nothing_is_reachable_when_nothing_is_listed(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL})
    assert room.run(f"curl -sSf http://good.test:{origin.port}/").exit_code == 22
    assert room.run(f"curl -sS http://127.0.0.1:{origin.port}/").exit_code == 7  # its own, empty loopback


def test_a_query_is_never_forwarded_or_resolved_before_it_is_judged(walled: Walls) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    room.run("getent hosts secret-data.evil.test; getent hosts good.test")
    assert room.run("curl -sSf http://more-data.evil.test/").exit_code == 22
    room.heard.blocked("more-data.evil.test")
    assert room.asked == []


def test_an_address_is_refused_with_a_page_that_says_how_to_allow_it(walled: Walls) -> None:
    result = walled(allowed_hosts=["*"]).run("curl -sS -i http://192.0.43.8/")
    assert result.stdout.startswith("HTTP/1.1 403 Forbidden: blocked by the sandbox: the address 192.0.43.8:80 ")
    assert "X-Proxy-Error: blocked-by-allowlist\r\n" in result.stdout
    assert (
        "add '192.0.43.8' to network.allowed_hosts" in result.stdout and "Rule: network.allowed_hosts" in result.stdout
    )


def test_tls_to_a_refused_address_is_answered_with_the_reason(walled: Walls) -> None:
    room = walled(allowed_hosts=["good.test"])
    assert "add '192.0.43.8' to network.allowed_hosts" in room.run("curl -sS https://192.0.43.8/").stdout


def test_tls_that_is_not_for_http_ends_with_an_alert(walled: Walls) -> None:
    code = (
        "import ssl, socket; c = ssl.create_default_context(); c.set_alpn_protocols(['imap']); "
        "c.wrap_socket(socket.create_connection(('mail.test', 993)), server_hostname='mail.test')"
    )
    assert "ACCESS_DENIED" in walled().python(code).stderr.upper()


def test_an_allowed_name_in_the_sni_does_not_open_an_address(walled: Walls) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    result = room.run("curl -sS --resolve good.test:443:192.0.43.8 https://good.test/")
    assert "Blocked by the sandbox: 192.0.43.8:443" in result.stdout and room.asked == []
    assert room.heard.blocked("192.0.43.8:443")


def test_other_protocols_are_reset(walled: Walls) -> None:
    code = "import socket\ns = socket.create_connection(('192.0.43.8', 5432)); s.sendall(b'\\0\\0\\0\\x08'); s.recv(1)"
    assert "ConnectionResetError" in walled().python(code).stderr


def test_a_client_hello_for_a_neighbour_is_refused(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL, "evil.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    result = room.run(f"curl -sS --connect-to evil.test:443:good.test:{origin.port} https://evil.test/")
    assert "Blocked by the sandbox" in result.stdout
    assert "ClientHello names evil.test" in room.heard.blocked("good.test")["reason"]


@pytest.mark.parametrize("kind", [20, 21, 23, 24])
@pytest.mark.parametrize("cut", [1, 7])
def test_no_record_before_a_client_hello_hides_the_name_in_it(
    walled: Walls, listener: Listen, kind: int, cut: int
) -> None:
    """Go's TLS skips an alert (a warning) there, and would then be asked for whatever name follows."""
    reached: list[bytes] = []
    port = listener(lambda client: reached.append(client.recv(99))).port
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    record = bytes((kind, 3, 1, 0, 2, 1, 90))
    code = (
        f"import socket; s = socket.create_connection(('good.test', {port})); s.setsockopt(6, 1, 1); "
        f"s.sendall({record[:cut]!r}); s.sendall({record[cut:]!r}); s.recv(1)"
    )
    assert "ConnectionResetError" in room.python(code).stderr
    assert "sent no ClientHello" in room.heard.blocked("good.test")["reason"]
    assert reached in ([], [b""])


def test_another_protocol_may_begin_with_a_byte_that_begins_a_record_too(walled: Walls, listener: Listen) -> None:
    port = listener(lambda client: client.sendall(client.recv(99))).port
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    ask = f"import socket; s = socket.create_connection(('good.test', {port})); "
    code = f"{ask}s.sendall(b'\\x15ab'); print(s.recv(9))"
    assert room.python(code).stdout == "b'\\x15ab'\n"


@pytest.mark.parametrize(
    "answers",
    [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["::ffff:10.0.0.1"], ["169.254.169.254"], ["127.0.0.1", "64:ff9b::a00:1"],
     ["2002:a00:1::"], ["100.64.0.1", "127.0.0.1"], ["127.0.0.1", "::1"]],
)  # fmt: skip
def test_a_name_that_leads_to_a_private_address_is_refused(walled: Walls, origin: Origin, answers: list[str]) -> None:
    room = walled(names={"rebind.test": answers}, allowed_hosts=["rebind.test", *LOCAL])
    result = room.run(f"curl -sS -i http://rebind.test:{origin.port}/")
    assert "403 Forbidden" in result.stdout
    assert room.heard.blocked("rebind.test")["rule"] == "network.block_private_ips"


def test_rebinding_between_two_connections_is_refused(walled: Walls, origin: Origin) -> None:
    room = walled(names={"rebind.test": LOCAL}, allowed_hosts=["rebind.test", *LOCAL])
    ask = f"curl -sS -o /dev/null -w '%{{http_code}}' http://rebind.test:{origin.port}/"
    assert room.run(ask).stdout == "200"
    room.names["rebind.test"] = ["192.168.0.1"]
    assert room.run(ask).stdout == "403"


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376"],
)
def test_metadata_is_out_of_reach_in_every_spelling(walled: Walls, host: str) -> None:
    room = walled(allowed_hosts=["*", "169.254.169.254", "0.0.0.0/0"], block_private_ips=False)
    result = room.run(f"curl -sS -m 5 -o /dev/null -w '%{{http_code}}' 'http://{host}/latest/meta-data/'")
    assert result.stdout in ("403", "000")


def test_a_redirect_to_metadata_is_refused(walled: Walls, listener: Listen) -> None:
    def redirect(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")

    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    result = room.run(f"curl -sS -L -i http://good.test:{listener(redirect).port}/")
    assert "403 Forbidden" in result.stdout and "cannot be allowed" not in result.stdout.split("403")[0]


def test_udp_goes_nowhere_so_quic_falls_back(walled: Walls) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    code = """
import socket
for family, host in ((socket.AF_INET, 'good.test'), (socket.AF_INET, '8.8.8.8'), (socket.AF_INET6, '2606:4700::1111')):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(60); s.connect((host, 443))
    try:
        s.send(b'quic'); s.recv(10); print('answered')
    except ConnectionRefusedError:
        print('refused')"""
    assert room.python(code).stdout == "refused\n" * 3


def test_icmp_and_raw_sockets_are_refused(walled: Walls) -> None:
    code = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"
    assert "PermissionError" in walled(allowed_hosts=["*"]).python(code).stderr


def test_a_stale_synthetic_address_names_no_host(walled: Walls) -> None:
    result = walled(allowed_hosts=["*"]).run("curl -sS -i http://198.18.77.77/")
    assert "403 Forbidden" in result.stdout and "resolve the name again" in result.stdout


def test_ssh_is_for_git_only_when_git_is_allowed(walled: Walls) -> None:
    connect = "import socket; print(socket.create_connection(('git.test', 22)).recv(100))"
    room = walled(names={"git.test": LOCAL}, allowed_hosts=["git.test", *LOCAL], allow_git=False)
    room.python(connect)
    assert "allow_git" in room.heard.blocked("git.test:22")["reason"]
    room = walled(names={"git.test": LOCAL}, allowed_hosts=["git.test", *LOCAL], allow_git=True)
    room.python(connect)
    assert room.heard.wait(lambda one: "git.test:22" in one["url"])["rule"] == "network.allow_git"


def test_an_unreachable_origin_is_reported_as_such(walled: Walls) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", "missing.test", *LOCAL])
    with refusing_port() as port:
        assert "502 Bad Gateway" in room.run(f"curl -sS -i http://good.test:{port}/").stdout
    assert "502 Bad Gateway" in room.run("curl -sS -i http://missing.test/").stdout
    assert not room.heard.wait(lambda one: one["status_code"] == 502)["blocked"]


# -- DNS on other ways


def dns_query(name: bytes, kind: int = 1) -> str:
    labels = b"".join(bytes((len(one),)) + one for one in name.split(b".")) + b"\0"
    return repr(struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1))


@pytest.mark.parametrize("resolver", ["198.18.0.2", "8.8.8.8", "2001:4860:4860::8888"])
def test_whatever_resolver_a_tenant_asks_the_gate_answers(walled: Walls, resolver: str) -> None:
    room = walled(allowed_hosts=["good.test"])
    family = "AF_INET6" if ":" in resolver else "AF_INET"
    code = f"""
import socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    for query in ({dns_query(b"good.test")}, {dns_query(b"evil.test")}):
        s = socket.socket(socket.{family}, kind); s.settimeout(60); s.connect(('{resolver}', 53))
        framed = kind == socket.SOCK_STREAM
        s.send((len(query).to_bytes(2, 'big') if framed else b'') + query)
        answer = s.recv(1000)[2 if framed else 0:]
        print(answer[3] & 15, answer[-4:] if answer[7] else b'')"""
    result = room.python(code)
    assert result.stdout == "0 b'\\xc6\\x12\\x01\\x00'\n0 b'\\xc6\\x12\\x01\\x01'\n" * 2, result.stderr


def test_garbage_for_the_resolver_does_no_harm(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    code = """
import os, socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('198.18.0.2', 53))
for size in (0, 1, 11, 12, 100, 512, 1232, 4000, 60000):
    for _ in range(20):
        u.send(os.urandom(size))
for length in (b'', b'\\0', b'\\0\\0', b'\\xff\\xff', b'\\0\\x0c' + b'\\0' * 12, b'\\0\\x20' + b'\\xc0\\x0c' * 16):
    t = socket.create_connection(('198.18.0.2', 53)); t.sendall(length); t.close()"""
    assert room.python(code).exit_code == 0
    assert "GET /after" in room.run(f"curl -sS http://good.test:{origin.port}/after").stdout


# -- the host's ports, and the sandbox's


def test_chosen_host_ports_are_reachable_by_the_hosts_name(walled: Walls, origin: Origin) -> None:
    room = walled(localhost_ports=[origin.port])
    assert "GET /h" in room.run(f"curl -sS http://host.sandbox.internal:{origin.port}/h").stdout
    assert "403" in room.run("curl -sS -i http://host.sandbox.internal:1/").stdout


def test_chosen_host_ports_are_reachable_as_localhost(walled: Walls, origin: Origin) -> None:
    room = walled(localhost_ports=[origin.port])
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert "GET /l" in room.run(f"curl -sS http://{host}:{origin.port}/l").stdout
    assert room.heard.wait(lambda one: one["status_code"] == 200)["rule"] == "network.localhost_ports"


def test_the_sandboxs_own_loopback_works_inside(walled: Walls) -> None:
    code = """
import socket, threading
s = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=lambda: s.accept()[0].sendall(b'own')).start()
print(socket.create_connection(s.getsockname()).recv(9))"""
    room = walled()
    assert room.python(code).stdout == "b'own'\n" and room.heard.events == []


def test_the_hosts_name_leads_nowhere_without_ports(walled: Walls) -> None:
    assert "Rule: network.localhost_ports" in walled(allowed_hosts=["*"]).run("curl -s host.sandbox.internal").stdout


def test_a_published_port_leads_inside(walled: Walls) -> None:
    room = walled(publish=["127.0.0.1:0:8000"])
    serve = """
import socket
s = socket.create_server(('127.0.0.1', 8000)); print('up', flush=True)
while True:
    c, _ = s.accept(); c.sendall(b'from inside'); c.close()"""
    with room.sandbox.spawn(["/usr/bin/python3", "-c", serve]) as process:
        assert process.read(10).startswith(b"up")
        rule, _ = room.watch.published[0]
        with socket.create_connection((rule.address, rule.port)) as client:
            assert client.recv(100) == b"from inside"
        process.kill()


def test_a_published_port_where_nobody_listens_is_reset(walled: Walls) -> None:
    room = walled(publish=["0:9"])
    rule, _ = room.watch.published[0]
    with socket.create_connection((rule.address, rule.port)) as client, pytest.raises(ConnectionResetError):
        client.recv(1)


# -- while it runs


def test_new_connections_see_a_changed_policy_at_once(walled: Walls, origin: Origin) -> None:
    from sandbox.config.model import Network
    from sandbox.errors import ConfigError

    room = walled(names={"good.test": LOCAL}, allowed_hosts=[])
    ask = f"curl -sS -o /dev/null -w '%{{http_code}}' http://good.test:{origin.port}/"
    assert room.run(ask).stdout == "403"
    room.watch.update(Network.read({"allowed_hosts": ["good.test", *LOCAL]}))
    assert room.run(ask).stdout == "200"
    with pytest.raises(ConfigError):
        room.watch.update(Network.read({"allowed_hosts": ["not a host"]}))
    assert room.run(ask).stdout == "200"
    room.watch.update(Network.read({"allowed_hosts": ["good.test", *LOCAL], "denied_hosts": ["good.test"]}))
    assert room.run(ask).stdout == "403"


def test_an_upstream_proxy_carries_every_connection(walled: Walls, listener: Listen, origin: Origin) -> None:
    heads: list[bytes] = []

    def proxy(client: socket.socket) -> None:
        head = client.recv(4096)
        heads.append(head)
        client.sendall(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n")
        with socket.create_connection(("127.0.0.1", origin.port)) as upstream:
            threading.Thread(target=lambda: upstream.sendall(client.recv(65536)), daemon=True).start()
            while data := upstream.recv(65536):
                client.sendall(data)

    address = f"http://user:pass@127.0.0.1:{listener(proxy).port}"
    room = walled(allowed_hosts=["far.test"], upstream_proxy=address)
    assert "GET /p" in room.run("curl -sS http://far.test:81/p").stdout
    assert heads[0].startswith(b"CONNECT far.test:81 HTTP/1.1\r\n") and b"Basic dXNlcjpwYXNz" in heads[0]
    assert room.run("curl -sSf http://evil.test:81/p").exit_code == 22


def test_what_an_upstream_proxy_says_is_never_repeated(walled: Walls, listener: Listen) -> None:
    def proxy(client: socket.socket) -> None:
        head = client.recv(4096).replace(b"\r\n", b"|")
        client.sendall(b"HTTP/1.1 407 You sent " + head + b"\r\nX-Sent: " + head + b"\r\n\r\n")

    address = f"http://user:pass@127.0.0.1:{listener(proxy).port}"
    room = walled(allowed_hosts=["far.test"], upstream_proxy=address)
    told = room.run("curl -sS http://far.test:81/p").stdout
    assert "the upstream proxy refused far.test:81: 407" in told
    for each in (told, repr(room.heard.events)):
        assert "dXNlcjpwYXNz" not in each


def test_a_sandbox_that_uses_no_network_imports_nothing_of_the_gate() -> None:
    code = """
import sys
import tempfile
from sandbox.config.model import Network
from sandbox.network.gate_thread import GateThread
w = GateThread({}, Network(), sandbox_id='x', emit=print, record=print, dial=print); w.start(); w.close()
bad = {'asyncio', 'ssl', 'cryptography', 'sandbox.network.gate.gate', 'sandbox.policy.network'} & set(sys.modules)
assert not bad, bad"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_closing_ends_connections_and_gives_everything_back(walled: Walls, listener: Listen) -> None:
    room = walled(names={"raw.test": LOCAL}, allowed_hosts=["raw.test", *LOCAL])
    ended = threading.Event()

    def wait_for_end(client: socket.socket) -> None:
        client.sendall(b"x")
        try:
            client.recv(1)
        finally:
            ended.set()

    port = listener(wait_for_end).port
    code = f"""
import socket
s = socket.create_connection(('raw.test', {port})); s.recv(1); print('on', flush=True); s.recv(1)"""
    with room.sandbox.spawn(["/usr/bin/python3", "-c", code]) as process:
        assert process.read(10).startswith(b"on")
        name = f"gate-{room.sandbox.id}"  # other threads come and go by themselves
        assert name in [thread.name for thread in threading.enumerate()]
        room.watch.close()
        assert ended.wait(60) and name not in [thread.name for thread in threading.enumerate()]
        process.kill()


def test_many_connections_leave_no_descriptors_behind(walled: Walls, origin: Origin) -> None:
    room = walled(names={"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])
    ask = f"curl -sS -o /dev/null -H 'Connection: close' 'http://good.test:{origin.port}/[1-30]'"
    room.run(ask)
    room.heard.wait(lambda one: len(room.heard.events) == 30)
    before = open_descriptors()
    room.run(ask)
    room.heard.wait(lambda one: len(room.heard.events) == 60)
    assert_given_back(before + 9)  # one connection may still be on its way out


def test_a_resolver_that_hangs_does_not_keep_a_sandbox_from_closing(walled: Walls) -> None:
    asked, release = threading.Event(), threading.Event()

    def hang(host: str, port: int) -> list[str]:
        asked.set()
        release.wait(60)
        return LOCAL

    room = walled(allowed_hosts=["slow.test"])
    room.watch.resolve = hang
    with room.sandbox.spawn(["curl", "-s", "http://slow.test/"]) as process:
        assert asked.wait(20)
        room.watch.close()
        process.kill()
    assert not release.is_set()
    release.set()


def test_another_protocol_reaches_an_intercepting_gates_host_where_the_owner_said_so(
    walled: Walls, listener: Listen
) -> None:
    port = listener(lambda client: client.sendall(b"220 ready\r\n")).port
    names = {"db.test": LOCAL, "web.test": LOCAL}
    room = walled(names=names, allowed_hosts=[f"tcp:db.test:{port}", "web.test", *LOCAL], intercept=True)
    ask = "import socket; s = socket.create_connection(('{}', {})); s.sendall(b'\\0'); print(s.recv(99))"
    assert room.python(ask.format("db.test", port)).stdout == "b'220 ready\\r\\n'\n"
    quiet = f"import socket; print(socket.create_connection(('db.test', {port})).recv(99))"
    assert room.python(quiet).stdout == "b'220 ready\\r\\n'\n"
    assert "ConnectionResetError" in room.python(ask.format("web.test", port)).stderr
    assert f"'tcp:web.test:{port}'" in room.heard.blocked("web.test")["reason"]
