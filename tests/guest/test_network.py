"""Every address in the world leads to the host's sockets, with the address the tenant meant."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.driver import Place, launch
from tests.syscalls import NUMBERS

DIAL = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
s.sendall(b'hi'); print(s.recv(10).decode())
"""

ASK = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.connect((sys.argv[1], int(sys.argv[2])))
s.send(b'who'); print(s.recv(100).decode())
"""


@pytest.fixture(scope="module")
def net(guest: Path) -> Iterator[tuple[Place, dict[str, socket.socket]]]:
    with launch(guest) as place:
        ready = place.setup(uid=1000, gid=1000, network=True, ports=[80, 443])
        assert ready["t"] == "ready" and ready["have"]["nft"], ready
        yield place, place.sockets()


@pytest.mark.parametrize(
    ("kind", "address", "port"),
    [("tcp4", "1.2.3.4", 443), ("tcp4", "10.0.0.1", 22), ("tcp4", "169.254.169.254", 80), ("tcp4", "192.0.2.1", 1),
     ("tcp4", "192.0.2.1", 65535), ("tcp4", "8.8.8.8", 53), ("tcp6", "2001:db8::1", 8443), ("tcp6", "fd00::1", 1),
     ("tcp6", "64:ff9b::a00:1", 443)],
)  # fmt: skip
def test_a_connection_to_any_address_and_port_arrives_at_the_host(
    net: tuple[Place, dict[str, socket.socket]], kind: str, address: str, port: int
) -> None:
    place, sockets = net
    command = place.start("/usr/bin/python3", "-c", DIAL, address, str(port))
    assert command.started()["t"] == "started"
    connection, _ = sockets[kind].accept()
    with connection:
        assert connection.getsockname()[:2] == (address, port)
        connection.settimeout(20)
        assert connection.recv(10) == b"hi"
        connection.sendall(b"from the host")
    assert command.wait().out == b"from the ho\n"[:10] + b"\n"


def test_loopback_is_the_tenants_own(net: tuple[Place, dict[str, socket.socket]]) -> None:
    place, _ = net
    for address in ("127.0.0.1", "::1", "127.9.9.9"):
        code = (
            "import socket, threading, sys\n"
            "f = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET\n"
            "s = socket.create_server((sys.argv[1], 443), family=f)\n"
            "threading.Thread(target=lambda: s.accept()[0].sendall(b'own')).start()\n"
            "print(socket.create_connection((sys.argv[1], 443)).recv(9).decode())"
        )
        assert place.python(code, address).out == b"own\n", address


def test_the_gates_own_port_on_loopback_is_nobody(net: tuple[Place, dict[str, socket.socket]]) -> None:
    place, _ = net
    assert b"Refused" in place.python(DIAL, "127.0.0.1", "1").err


def test_a_wildcard_listener_of_a_tenant_catches_nothing_meant_for_the_world(
    net: tuple[Place, dict[str, socket.socket]],
) -> None:
    place, sockets = net
    command = place.start(
        "/usr/bin/python3", "-c", "import socket\ns = socket.create_server(('0.0.0.0', 443))\n" + DIAL, "5.6.7.8", "443"
    )
    command.started()
    connection, _ = sockets["tcp4"].accept()
    assert connection.getsockname() == ("5.6.7.8", 443)
    connection.sendall(b"host")
    connection.close()
    assert command.wait().out == b"host\n"


@pytest.mark.parametrize("address", ["9.9.9.9", "127.0.0.53", "2001:4860:4860::8888", "::1"])
def test_a_name_query_to_any_address_is_answered_by_the_host(
    net: tuple[Place, dict[str, socket.socket]], address: str
) -> None:
    place, sockets = net
    six = ":" in address
    command = place.start("/usr/bin/python3", "-c", ASK, address, "53")
    command.started()
    udp = sockets["udp6" if six else "udp4"]
    data, control, _, peer = udp.recvmsg(100, 1000)
    level, kind, info = control[0]
    if six:
        meant = socket.inet_ntop(socket.AF_INET6, info[:16])
        back = info[:16] + struct.pack("I", 0)
    else:
        meant = socket.inet_ntoa(info[8:12])
        back = struct.pack("I4s4s", 0, info[8:12], b"\0" * 4)
    assert (data, meant) == (b"who", address)
    udp.sendmsg([b"me"], [(level, kind, back)], 0, peer)
    assert command.wait().out == b"me\n"


@pytest.mark.parametrize("address", ["1.2.3.4", "2001:db8::7", "127.0.0.1"])
def test_other_datagrams_are_refused(net: tuple[Place, dict[str, socket.socket]], address: str) -> None:
    place, _ = net
    assert b"ConnectionRefusedError" in place.python(ASK, address, "443").err


def test_low_ports_may_be_listened_on(net: tuple[Place, dict[str, socket.socket]]) -> None:
    place, _ = net
    assert place.python("import socket; socket.create_server(('127.0.0.1', 80))").code == 0


def test_the_routes_and_rules_are_out_of_a_tenants_hands(net: tuple[Place, dict[str, socket.socket]]) -> None:
    place, _ = net
    for command in (
        "ip route add blackhole 1.0.0.0/8",
        "ip link set lo down",
        "ip addr add 1.1.1.1 dev lo",
        "nft flush ruleset",
    ):
        assert place.run("sh", "-c", f"PATH=$PATH:/usr/sbin {command}").code != 0, command


def test_without_network_there_is_loopback_and_nothing_else(place: Place) -> None:
    assert place.ready["sockets"] == ["null"]
    assert b"Network is unreachable" in place.python(DIAL, "1.2.3.4", "443").err
    assert b"Network is unreachable" in place.python(DIAL, "2001:db8::1", "443").err
    assert b"Refused" in place.python(DIAL, "127.0.0.1", "443").err


def test_the_hosts_own_loopback_is_not_reachable(net: tuple[Place, dict[str, socket.socket]]) -> None:
    place, _ = net
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert b"Refused" in place.python(DIAL, "127.0.0.1", str(listener.getsockname()[1])).err
    abstract = f"\0guest-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(abstract)
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({abstract!r})"
        assert b"Refused" in place.python(code).err


def no_nftables() -> int:
    """A filter for bwrap that makes the kernel look as if it had no nf_tables, as a descriptor."""
    number = NUMBERS["socket"]
    program = [
        (0x20, 0, 0, 0), (0x15, 0, 5, number),  # socket(
        (0x20, 0, 0, 16), (0x15, 0, 3, 16),  # AF_NETLINK, ...,
        (0x20, 0, 0, 32), (0x15, 0, 1, 12),  # NETLINK_NETFILTER)
        (0x06, 0, 0, 0x50000 | errno.EPROTONOSUPPORT), (0x06, 0, 0, 0x7FFF0000),
    ]  # fmt: skip
    fd = os.memfd_create("filter")
    os.write(fd, b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def test_without_nftables_the_named_ports_are_listened_on_and_others_refused(guest: Path) -> None:
    fd = no_nftables()
    with launch(guest, leak=(fd,), options=("--seccomp", str(fd))) as place:
        os.close(fd)
        ready = place.setup(uid=1000, gid=1000, network=True, ports=[80, 443])
        assert ready["t"] == "ready" and ready["have"]["nft"] is False, ready
        assert ready["sockets"] == ["null", "tcp4:80", "tcp6:80", "tcp4:443", "tcp6:443", "udp4", "udp6"]
        sockets = place.sockets()
        for kind, address in (("tcp4:443", "1.2.3.4"), ("tcp6:443", "2001:db8::1")):
            command = place.start("/usr/bin/python3", "-c", DIAL, address, "443")
            command.started()
            connection, _ = sockets[kind].accept()
            assert connection.getsockname()[:2] == (address, 443)
            connection.sendall(b"host")
            connection.close()
            assert command.wait().out == b"host\n"
        assert b"Refused" in place.python(DIAL, "1.2.3.4", "8080").err
