"""Each wall, tried from inside: what a tenant is, and what the kernel answers it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.driver import WAIT, Place, Stream, bwrap, launch
from tests.syscalls import NUMBERS, X86_64

#: Calls with arguments, and the error a tenant gets.
REFUSED = {
    "unshare(CLONE_NEWUSER)": ((0x10000000,), errno.EPERM),
    "unshare(CLONE_NEWNS)": ((0x00020000,), errno.EPERM),
    "unshare(CLONE_NEWTIME)": ((0x80,), errno.EPERM),
    "unshare(CLONE_NEWNET), high bits set": ((0xFF_40000000,), errno.EPERM),
    "clone(CLONE_NEWUSER)": ((0x10000000 | 17, 0, 0, 0, 0), errno.EPERM),
    "clone(CLONE_NEWPID), high bits set": ((0xF_20000011, 0, 0, 0, 0), errno.EPERM),
    "clone3": ((0, 0), errno.ENOSYS),
    "setns": ((0, 0), errno.EPERM),
    "mount": ((0, 0, 0, 0, 0), errno.EPERM),
    "umount2": ((0, 0), errno.EPERM),
    "pivot_root": ((0, 0), errno.EPERM),
    "chroot": ((0,), errno.EPERM),
    "open_tree": ((-100, 0, 0), errno.EPERM),
    "move_mount": ((0, 0, 0, 0, 0), errno.EPERM),
    "fsopen": ((0, 0), errno.EPERM),
    "fsconfig": ((0, 0, 0, 0, 0), errno.EPERM),
    "fsmount": ((0, 0, 0), errno.EPERM),
    "fspick": ((0, 0, 0), errno.EPERM),
    "mount_setattr": ((0, 0, 0, 0, 0), errno.EPERM),
    "open_tree_attr": ((0, 0, 0, 0, 0), errno.EPERM),
    "keyctl": ((0, 0), errno.EPERM),
    "add_key": ((0, 0, 0, 0, 0), errno.EPERM),
    "request_key": ((0, 0, 0, 0), errno.EPERM),
    "io_uring_setup": ((8, 0), errno.ENOSYS),
    "io_uring_enter": ((0, 0, 0, 0, 0), errno.ENOSYS),
    "io_uring_register": ((0, 0, 0, 0), errno.ENOSYS),
    "ptrace(TRACEME)": ((0, 0, 0, 0), errno.EPERM),
    "process_vm_readv": ((1, 0, 0, 0, 0, 0), errno.EPERM),
    "process_vm_writev": ((1, 0, 0, 0, 0, 0), errno.EPERM),
    "pidfd_getfd": ((0, 0, 0), errno.EPERM),
    "kcmp": ((1, 1, 0, 0, 0), errno.EPERM),
    "bpf": ((0, 0, 0), errno.EPERM),
    "userfaultfd": ((0,), errno.EPERM),
    "perf_event_open": ((0, 0, 0, 0, 0), errno.EPERM),
    "kexec_load": ((0, 0, 0, 0), errno.EPERM),
    "init_module": ((0, 0, 0), errno.EPERM),
    "finit_module": ((0, 0, 0), errno.EPERM),
    "delete_module": ((0, 0), errno.EPERM),
    "swapon": ((0, 0), errno.EPERM),
    "reboot": ((0, 0, 0, 0), errno.EPERM),
    "acct": ((0,), errno.EPERM),
    "quotactl": ((0, 0, 0, 0), errno.EPERM),
    "syslog": ((3, 0, 0), errno.EPERM),
    "iopl": ((3,), errno.EPERM),
    "ioperm": ((0, 1, 1), errno.EPERM),
    "modify_ldt": ((0, 0, 0), errno.EPERM),
    "fanotify_init": ((0, 0), errno.EPERM),
    "open_by_handle_at": ((0, 0, 0), errno.EPERM),
    "name_to_handle_at": ((0, 0, 0, 0, 0), errno.EPERM),
    "personality(READ_IMPLIES_EXEC)": ((0x0400000,), errno.EPERM),
    "ioctl(TIOCSTI)": ((0, 0x5412, 0), errno.EPERM),
    "ioctl(TIOCSTI), high bits set": ((0, 0xDEAD_00005412, 0), errno.EPERM),
    "ioctl(TIOCLINUX)": ((0, 0x541C, 0), errno.EPERM),
    "ioctl(TIOCSETD)": ((0, 0x5423, 0), errno.EPERM),
    "socket(AF_VSOCK)": ((40, 1, 0), errno.EAFNOSUPPORT),
    "socket(AF_PACKET)": ((17, 3, 0), errno.EAFNOSUPPORT),
    "socket(AF_ALG)": ((38, 5, 0), errno.EAFNOSUPPORT),
    "socket(AF_XDP)": ((44, 3, 0), errno.EAFNOSUPPORT),
    "socket(AF_BLUETOOTH)": ((31, 3, 0), errno.EAFNOSUPPORT),
    "socket(AF_VSOCK), high bits set": ((0x1_00000028, 1, 0), errno.EAFNOSUPPORT),
    "socket(AF_INET, SOCK_RAW)": ((2, 3, 1), errno.EPERM),
    "socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC)": ((10, 3 | 0o2000000, 58), errno.EPERM),
    "socket(AF_INET, SOCK_PACKET)": ((2, 10, 0), errno.EPERM),
    "socket(AF_INET, SOCK_SEQPACKET, SCTP)": ((2, 5, 132), errno.EPERM),
    "socket(AF_INET6, SOCK_DCCP)": ((10, 6, 33), errno.EPERM),
    "socket(AF_INET, SOCK_STREAM, SCTP)": ((2, 1, 132), errno.EPROTONOSUPPORT),
    "socket(AF_INET, SOCK_STREAM, SMC)": ((2, 1, 256), errno.EPROTONOSUPPORT),
    "socket(AF_INET, SOCK_STREAM, MPTCP)": ((2, 1, 262), errno.EPROTONOSUPPORT),
    "socket(AF_INET6, SOCK_DGRAM, L2TP)": ((10, 2, 115), errno.EPROTONOSUPPORT),
    "socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, UDP-Lite)": ((10, 2 | 0o4000, 136), errno.EPROTONOSUPPORT),
    "socket(AF_NETLINK, NETLINK_NETFILTER)": ((16, 3, 12), errno.EPROTONOSUPPORT),
    "socketpair(AF_VSOCK)": ((40, 1, 0, 0), errno.EAFNOSUPPORT),
}

CALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
number, *args = map(int, sys.argv[1:])
result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in args))
print(result, ctypes.get_errno())
"""


def call(place: Place, number: int, *args: int) -> tuple[int, int]:
    result, error = place.python(CALL, str(number), *map(str, args)).out.split()
    return int(result), int(error)


@pytest.fixture(scope="module")
def shared(guest: Path) -> Iterator[Place]:
    """One place for all probes that leave nothing behind."""
    with launch(guest) as made:
        assert made.setup(uid=1000, gid=1000, network=True, writable=[b"/tmp", b"/room", b"/dev"])["t"] == "ready"
        yield made


def number_of(call: str) -> int:
    name = re.split("[(,]", call)[0]
    if name not in NUMBERS:
        pytest.skip(f"this machine has no {name}")
    return NUMBERS[name]


@pytest.mark.parametrize("name", REFUSED)
def test_the_filter_refuses(shared: Place, name: str) -> None:
    args, error = REFUSED[name]
    assert call(shared, number_of(name), *args) == (-1, error)


@pytest.mark.skipif(not X86_64, reason="x32 is a way of calling on x86_64")
@pytest.mark.parametrize(("name", "number"), [("getpid", 39), ("ptrace", 521)])
def test_the_filter_refuses_x32(shared: Place, name: str, number: int) -> None:
    assert call(shared, 0x40000000 | number, 0, 0, 0, 0) == (-1, errno.ENOSYS)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("personality(query)", (0xFFFFFFFF,)),
        ("personality(ADDR_NO_RANDOMIZE)", (0x0040000,)),
        ("socket(AF_NETLINK, NETLINK_ROUTE)", (16, 3, 0)),
        ("socket(AF_UNIX)", (1, 1, 0)),
        ("socket(AF_INET6)", (10, 1, 0)),
        ("unshare(CLONE_FILES)", (0x400,)),
        ("pidfd_open(1)", (1, 0)),
        ("memfd_create", (0, 0)),
    ],
)
def test_the_filter_lets_through(shared: Place, name: str, args: tuple[int, ...]) -> None:
    result, error = call(shared, number_of(name), *args)
    assert result >= 0 or error == errno.EFAULT, name


@pytest.mark.skipif(not X86_64 or not shutil.which("cc"), reason="needs a compiler")
def test_a_32_bit_call_kills_the_caller(guest: Path, tmp_path: Path) -> None:
    source = tmp_path / "call.c"
    source.write_text(
        'int main(void) { long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L)); return r > 0 ? 0 : 1; }'
    )
    subprocess.run(["cc", "-o", tmp_path / "call", source], check=True)
    tmp_path.chmod(0o755)
    with launch(guest, binds=((str(tmp_path), "/room"),)) as place:
        place.setup(uid=1000, gid=1000)
        assert place.run("/room/call").exit["signal"] == 31  # SIGSYS


def test_a_debugger_may_be_allowed(guest: Path) -> None:
    with launch(guest) as place:
        place.setup(uid=1000, gid=1000, allow_ptrace=True)
        assert place.python("import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))").out == b"0\n"


def status(place: Place) -> dict[str, str]:
    text = place.run("cat", "/proc/self/status").out.decode()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def test_no_capability_is_left_in_any_set(shared: Place) -> None:
    fields = status(shared)
    assert {fields[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}


def test_no_capability_comes_back_for_user_0(guest: Path) -> None:
    with launch(guest) as place:
        place.setup(uid=0, gid=0)
        fields = status(place)
        assert {fields[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert place.run("hostname", "other").code != 0


def test_no_new_privileges_and_the_filter_are_on(shared: Place) -> None:
    fields = status(shared)
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"


def test_a_tenant_is_the_user_that_was_asked_for_and_can_be_no_other(shared: Place) -> None:
    assert shared.run("sh", "-c", "id -u; id -g; cat /proc/self/uid_map").out.split() == [
        b"1000",
        b"1000",
        b"1000",
        b"0",
        b"1",
    ]
    assert shared.python("import os; os.setuid(0)").code != 0
    assert shared.python("import os; os.setgroups([])").code != 0


def test_setuid_programs_gain_nothing(shared: Place) -> None:
    assert shared.run("sh", "-c", "cp /usr/bin/id /tmp/id; chmod 6755 /tmp/id; /tmp/id -u").out == b"1000\n"


def test_the_session_keyring_is_new(guest: Path) -> None:
    with launch(guest) as place:
        assert place.setup(uid=1000, gid=1000)["have"]["keyring"] is True


def test_no_core_is_written(shared: Place) -> None:
    assert shared.run(
        "sh", "-c", "ulimit -Hc; cd /tmp; sh -c 'kill -SEGV $$'; ls /tmp/core* 2>/dev/null"
    ).out.split() == [b"0"]


@pytest.mark.parametrize(
    "name", ["mem", "environ", "maps", "fd/3", "fd/0", "cwd", "root", "exe", "fdinfo/3", "stack", "auxv"]
)
def test_the_guest_itself_is_out_of_reach(shared: Place, name: str) -> None:
    result = shared.python(f"import os; print(os.read(os.open('/proc/1/{name}', os.O_RDONLY), 1))")
    assert result.code == 1 and (b"PermissionError" in result.err), result


def test_the_guest_says_nothing_to_anyone_after_its_set_up(shared: Place) -> None:
    assert shared.python("import os\nfor n in range(3): os.readlink(f'/proc/1/fd/{n}')").code == 1


def test_landlock_refuses_writing_elsewhere(guest: Path) -> None:
    with launch(guest) as place:
        ready = place.setup(uid=1000, gid=1000, writable=[b"/tmp", b"/dev/null"])
        if not ready["have"]["landlock"]:
            pytest.skip("this kernel has no Landlock")
        assert place.run("sh", "-c", "echo x > /room/a").code != 0  # though its mount is writable
        assert place.run("sh", "-c", "mkdir /room/d").code != 0
        assert place.run("sh", "-c", "echo x > /tmp/a && mv /tmp/a /tmp/b && rm /tmp/b && echo y > /dev/null").code == 0
        assert place.file("write", "/room/a", data=b"x")[0]["errno"] == errno.EACCES


def test_a_landlock_path_that_does_not_exist_fails_the_set_up(guest: Path) -> None:
    with launch(guest) as place:
        answer = place.setup(uid=1000, gid=1000, writable=[b"/nowhere"])
        assert (answer["step"], answer["errno"], answer["detail"]) == ("landlock", errno.ENOENT, b"/nowhere")


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/net/ipv4/ip_forward",
    ],
)
def test_the_kernels_switches_are_read_only(shared: Place, path: str) -> None:
    result = shared.run("sh", "-c", f"echo 0 > {path}")
    assert result.code != 0 and any(why in result.err for why in (b"Read-only", b"Permission", b"nonexistent")), result


def test_a_step_that_fails_is_named_and_the_guest_is_gone(guest: Path) -> None:
    with launch(guest) as place:
        answer = place.setup(uid=1000, gid=1000, mounts=[{"kind": "tmpfs", "path": b"/nowhere"}])
        assert (answer["t"], answer["step"], answer["errno"], answer["detail"]) == (
            "failed",
            "mounts",
            errno.ENOENT,
            b"/nowhere",
        )
        assert place.process.wait(30) != 0


def test_without_walls_the_guest_still_runs_commands(guest: Path) -> None:
    with launch(guest, walls=False) as place:
        assert place.setup(walls=False, rlimits=[[7, 55, 66]])["t"] == "ready"
        assert place.run("sh", "-c", "id -u; ulimit -Sn").out.split() == [str(os.geteuid()).encode(), b"55"]


def test_walls_are_not_built_where_nothing_is_around_the_guest(guest: Path) -> None:
    """In bubblewrap all the same, but not as its first process: were it not refused, no harm would be done here."""
    ours, theirs = socket.socketpair()
    command = [one for one in bwrap() if one != "--as-pid-1"]
    command += ["--ro-bind", str(guest), "/guest", "--", "/bin/sh", "-c", 'exec 3<&0 </dev/null; "$0"; exit', "/guest"]
    with theirs:
        process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
    ours.settimeout(WAIT)
    with Place(process, Stream(ours)) as place:
        answer = place.setup(mounts=[{"kind": "tmpfs", "path": b"/tmp", "size": 4096, "mode": 0o755}])
        assert (answer["t"], answer["step"], answer["errno"]) == ("failed", "namespaces", errno.EPERM)
