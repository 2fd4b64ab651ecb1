"""Design's step 4: what a tenant has not, each by itself."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.security.conftest import Probe
from tests.syscalls import NUMBERS, X86_64


def test_no_capability_in_any_set(sandbox: Sandbox) -> None:
    status = sandbox.exec("grep ^Cap /proc/self/status").stdout.split()
    assert status[1::2] == ["0000000000000000"] * 5


def test_set_user_id_programs_gain_nothing(sandbox: Sandbox) -> None:
    assert "NoNewPrivs:\t1" in sandbox.exec("cat /proc/self/status").stdout
    assert sandbox.exec("su -c id root </dev/null || sudo -n id").exit_code != 0


def test_no_new_user_namespace(sandbox: Sandbox, probe: Probe) -> None:
    assert sandbox.exec(["unshare", "--user", "--map-root-user", "id"]).exit_code != 0
    assert sandbox.exec(["unshare", "--mount", "true"]).exit_code != 0
    new_user = 0x10000000
    assert probe(f"print(syscall({NUMBERS['unshare']}, {new_user}))").stdout == "EPERM\n"
    assert probe(f"print(syscall({NUMBERS['clone']}, {new_user} | 17, 0, 0, 0, 0))").stdout == "EPERM\n"
    assert probe(f"print(syscall({NUMBERS['clone3']}, 0, 0))").stdout == "ENOSYS\n"  # its flags cannot be looked at


@pytest.mark.parametrize(
    "name",
    [
        "add_key",
        "request_key",
        "keyctl",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "bpf",
        "userfaultfd",
        "perf_event_open",
        "mount",
        "umount2",
        "pivot_root",
        "open_tree",
        "move_mount",
        "fsopen",
        "mount_setattr",
        "setns",
        "kexec_load",
        "init_module",
        "finit_module",
        "open_by_handle_at",
        "pidfd_getfd",
        "syslog",
        "reboot",
        "swapon",
        "acct",
        "iopl",
        "modify_ldt",
    ],
)
def test_a_dangerous_system_call_is_refused(probe: Probe, name: str) -> None:
    if name not in NUMBERS:
        pytest.skip(f"this machine has no {name}")
    assert probe(f"print(syscall({NUMBERS[name]}, 0, 0, 0, 0, 0))").stdout in ("EPERM\n", "ENOSYS\n")


@pytest.mark.skipif(not X86_64, reason="ways of calling on x86_64")
def test_x32_and_32_bit_calls_are_refused(probe: Probe) -> None:
    assert probe("print(syscall(0x40000000 | 39))").stdout == "ENOSYS\n"
    # int 0x80 from 64-bit code: getpid as i386 numbers it.
    result = probe(
        """
        import mmap
        code = bytes.fromhex("b814000000cd80c3")
        memory = mmap.mmap(-1, 4096, prot=7)
        memory.write(code)
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
        print("answer", call())
        """
    )
    assert result.signal is not None or int(result.stdout.split()[1]) < 0


def test_no_core_is_dumped(sandbox: Sandbox, project: Path) -> None:
    result = sandbox.exec("ulimit -c; ulimit -c unlimited; kill -SEGV $$")
    assert result.stdout.split()[0] == "0"
    assert list(project.glob("core*")) == []


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_CORE)[1] == 0, reason="it is 0 here and cannot be raised")
def test_no_program_of_the_host_is_started_for_a_crash(probe: Probe) -> None:
    # The kernel does not start what core_pattern names when the limit is 1, and does when it is 0.
    ways = f"""
        import mmap, resource
        aligned = ctypes.c_void_p(1 << 32)  # the lower half of this address is 0
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap(aligned, 4096, 3, 0x32, -1, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        syscall({NUMBERS["prlimit64"]}, 0, 4, ctypes.c_void_p(1 << 32), 0)
        syscall({NUMBERS["setrlimit"]}, 4, ctypes.create_string_buffer(16))
        print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0)
    """
    assert probe(ways).stdout == "(1, 1) True\n"


def test_input_cannot_be_pushed_into_a_terminal(sandbox: Sandbox) -> None:
    code = (
        "import fcntl,termios,ctypes\n"
        "for request in (termios.TIOCSTI, termios.TIOCSTI | (1 << 32), 0x541C):\n"
        "    print(ctypes.CDLL(None).ioctl(0, ctypes.c_ulong(request), b'x'))\n"
    )
    with sandbox.spawn(["/usr/bin/python3", "-c", code], pty=(24, 80)) as process:
        said = b""
        while part := process.read():
            said += part
        assert [line.split()[0] for line in said.split(b"\r\n") if line] == [b"-1"] * 3


@pytest.mark.parametrize(
    ("family", "kind"), [("AF_VSOCK", 1), ("AF_PACKET", 3), ("AF_ALG", 5), ("AF_INET", 3), ("AF_INET6", 3)]
)
def test_a_socket_that_could_go_around_the_gate_is_refused(probe: Probe, family: str, kind: int) -> None:
    result = probe(f"socket.socket(socket.{family}, {kind})")
    assert result.exit_code != 0
    assert "Error" in result.stderr


@pytest.mark.process_walls("another kernel, with its own keyrings")
def test_the_session_keyring_of_the_owner_is_not_the_tenants(sandbox: Sandbox) -> None:
    assert sandbox.exec(["cat", "/proc/keys"]).exit_code != 0


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/proc/sys/net/ipv4/ip_forward",
    ],
)
def test_the_kernels_knobs_cannot_be_turned(sandbox: Sandbox, path: str) -> None:
    # Root's uid owns these files, capability or not: this must fail for root too.
    assert sandbox.exec(f"echo h > {path}").exit_code != 0


@pytest.mark.process_walls("they are the machine's own kernel's")
@pytest.mark.parametrize(
    "path",
    [
        *("/proc/kcore", "/proc/timer_list", "/proc/kmsg", "/dev/mem", "/dev/sda", "/dev/kmsg"),
        # The host's root owns these, and a sandbox of root's is the same user.
        *("/proc/slabinfo", "/proc/vmallocinfo", "/proc/pagetypeinfo", "/proc/kpageflags", "/proc/kpagecgroup"),
        *("/proc/cmdline", "/proc/interrupts", "/proc/iomem", "/proc/key-users"),
    ],
)
def test_the_kernels_secrets_cannot_be_read(sandbox: Sandbox, path: str) -> None:
    assert sandbox.exec(["head", "-c", "1", path]).exit_code != 0


def test_device_files_cannot_be_made(sandbox: Sandbox) -> None:
    assert sandbox.exec("mknod /tmp/disk b 8 0").exit_code != 0
    assert sandbox.exec("mknod zero c 1 5").exit_code != 0


def test_control_groups_are_out_of_sight(sandbox: Sandbox) -> None:
    assert sandbox.exec("ls /sys/fs/cgroup").exit_code != 0
    assert sandbox.exec("cat /proc/self/cgroup").stdout.count("/..") == 0 or os.geteuid() == 0


def test_a_tenant_cannot_trace_or_kill_the_guest(sandbox: Sandbox) -> None:
    sandbox.exec("kill -9 1; kill -STOP 1; kill -TERM 1; kill -SEGV 1; kill -9 -1")
    assert sandbox.exec("echo alive").stdout == "alive\n"


@pytest.mark.process_walls("in a machine there are no mounts to stand behind")
def test_landlock_backs_up_the_mounts(sandbox: Sandbox) -> None:
    assert sandbox._running.have["landlock"] >= 1  # type: ignore[attr-defined]
