"""Ways out that have worked on others, each tried by a tenant.

Every attempt prints ESCAPED when it gets what it wants.
"""

from __future__ import annotations

import os
import socket
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.driver import WAIT, Command, Place, assert_all_end, drain, launch, pidfds_of_all_in
from tests.syscalls import NUMBERS

SECRET = b"the host's own secret"


@pytest.fixture(scope="module")
def house(guest: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Path]]:
    """A place with a workspace on disk, beside a secret that is not in it; one file of the workspace is masked."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_bytes(SECRET)
    work = outside / "work"
    work.mkdir()
    (work / ".env").write_bytes(SECRET)
    with launch(guest, binds=((str(work), "/room"),)) as place:
        ready = place.setup(
            uid=1000, gid=1000, network=True, writable=[b"/room", b"/tmp", b"/dev"],
            mounts=[{"kind": "mask", "path": b"/room/.env"}, {"kind": "umount", "path": b"/guest"}],
        )  # fmt: skip
        assert ready["t"] == "ready", ready
        yield place, outside


def attempt(place: Place, code: str, *args: str) -> None:
    header = """
        import ctypes, errno, fcntl, os, socket, stat, struct, sys, threading, time
        libc = ctypes.CDLL(None, use_errno=True)
        def escaped(what=''):
            print('ESCAPED', what, flush=True)
        def tries(*acts):
            for act in acts:
                try:
                    got = act()
                    if got not in (None, -1, 0, b'', ''): escaped(repr(got)[:200])
                except OSError: pass
    """
    result = place.python(f"CALLS = {NUMBERS}\n{textwrap.dedent(header)}{textwrap.dedent(code)}", *args)
    assert b"ESCAPED" not in result.out and SECRET not in result.out, result
    assert b"Traceback" not in result.err, result.err.decode()
    assert place.run("true").code == 0, "the guest is gone"


def test_aliases_of_the_root_in_proc_lead_nowhere_new(house: tuple[Place, Path]) -> None:
    place, outside = house
    attempt(
        place,
        """
        secret = sys.argv[1]
        for base in ('/proc/self/root', '/proc/1/root', '/proc/1/cwd',
            '/proc/self/task/%d/root' % os.getpid(), '/proc/thread-self/root'):
            tries(lambda: open(base + secret, 'rb').read(), lambda: open(base + '/../..' + secret,
                'rb').read())
        for pid in filter(str.isdigit, os.listdir('/proc')):
            tries(lambda: open(f'/proc/{pid}/root{secret}', 'rb').read())
            if pid != str(os.getpid()):
                tries(lambda: open(f'/proc/{pid}/environ', 'rb').read() if pid == '1' else None)
        """,
        str(outside / "secret"),
    )


def test_climbing_out_of_the_workspace(house: tuple[Place, Path]) -> None:
    place, outside = house
    attempt(
        place,
        """
        os.chdir('/room')
        fd = os.open('.', os.O_RDONLY)
        for _ in range(20):
            fd = os.open('..', os.O_RDONLY, dir_fd=fd)
            tries(lambda: open(os.open('secret', os.O_RDONLY, dir_fd=fd), 'rb').read())
        tries(lambda: os.link('/room/.env', '/room/linked') or open('/room/linked', 'rb').read())
        os.symlink(sys.argv[1], '/room/out')
        tries(lambda: open('/room/out', 'rb').read())
        os.unlink('/room/out')
        """,
        str(outside / "secret"),
    )


def test_renaming_the_workspace_away_while_walking(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(
        place,
        """
        os.makedirs('/room/a/b', exist_ok=True); os.makedirs('/room/c', exist_ok=True)
        fd = os.open('/room/a/b', os.O_RDONLY)
        os.rename('/room/a/b', '/room/c/b')
        for _ in range(8):
            fd = os.open('..', os.O_RDONLY, dir_fd=fd)
        if os.fstat(fd).st_ino != os.stat('/').st_ino: escaped('another root')
        """,
    )


def test_a_masked_file_by_every_other_name(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(
        place,
        """
        p = '/room/.env'
        tries(lambda: open(p, 'rb').read(), lambda: open('/room//./.env', 'rb').read(), lambda: os.rename(p,
            '/room/x') or 1,
              lambda: os.unlink(p) or 1, lambda: os.chmod(p, 0o777) or 1,
              lambda: os.truncate(p, 0) or 1, lambda: os.replace('/etc/passwd', p) or 1,
              lambda: open(os.open(p, os.O_PATH), 'rb').read(),
              lambda: open('/proc/self/fd/%d' % os.open(p, os.O_PATH), 'rb').read())
        """,
    )


def test_the_guests_descriptors_cannot_be_taken(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(
        place,
        """
        pidfd = os.pidfd_open(1)
        for n in range(16):
            tries(lambda: open(f'/proc/1/fd/{n}', 'rb', buffering=0), lambda: os.readlink(f'/proc/1/fd/{n}'),
                  lambda: open(f'/proc/1/task/1/fd/{n}', 'rb', buffering=0),
                  lambda: open(f'/proc/1/fdinfo/{n}').read(),
                  lambda: libc.syscall(CALLS['pidfd_getfd'], pidfd, n, 0))
        for name in ('mem', 'maps', 'environ', 'auxv', 'syscall', 'stack', 'pagemap', 'map_files', 'exe'):
            tries(lambda: open(f'/proc/1/{name}',
                'rb', buffering=0).read(1) if name != 'map_files' else os.listdir('/proc/1/map_files'))
        buffer = ctypes.create_string_buffer(64)
        vec = struct.pack('QQ', ctypes.addressof(buffer), 64)
        tries(lambda: libc.syscall(CALLS['process_vm_readv'], 1, vec, 1, struct.pack('QQ', 0x400000, 64), 1, 0),
            lambda: libc.ptrace(16, 1, 0, 0))
        """,
    )


def test_a_helper_of_the_guest_cannot_be_caught_alive(house: tuple[Place, Path]) -> None:
    # It is a fork of the guest and holds its control socket; while it works a tenant sees it.
    place, _ = house
    hunter = _hunt(
        place,
        """
        import os
        print('up')
        seen = 0
        while seen < 20:
            for pid in filter(str.isdigit, os.listdir('/proc')):
                try:
                    if pid == '1' or open(f'/proc/{pid}/comm').read() != open('/proc/1/comm').read(): continue
                    seen += 1
                    for n in range(12):
                        os.open(f'/proc/{pid}/fd/{n}', os.O_RDWR); print('ESCAPED')
                except OSError: pass
        """,
    )
    while not _ended(hunter.line.socket):
        place.file("list", "/usr/bin")
    assert b"ESCAPED" not in hunter.wait().out


def test_a_helper_or_a_start_that_a_tenant_stops_blocks_nobody_else(house: tuple[Place, Path]) -> None:
    place, _ = house
    hunter = _hunt(
        place,
        """
        import os, signal
        print('up')
        while True:  # whoever comes next: the kernel tells the last number that it gave out
            last = int(open('/proc/loadavg').read().split()[-1])
            for pid in range(last - 2, last + 20):
                try:
                    if pid != os.getpid(): os.kill(pid, signal.SIGSTOP)
                except OSError: pass
        """,
    )
    for _ in range(100):
        answer, fds = place.file("list", "/usr/bin")
        assert answer["t"] in ("done", "failed") and not fds
    hunter.line.close()  # which kills it
    for output in (hunter.stdout, hunter.stderr):
        drain(output)


def _hunt(place: Place, code: str) -> Command:
    """A tenant that runs `code` until the end, and has begun: it has said `up`."""
    hunter = place.start("/usr/bin/python3", "-u", "-c", textwrap.dedent(code))
    hunter.started()
    assert os.read(hunter.stdout, 2) == b"up"
    return hunter


def _ended(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        return bool(line.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        line.settimeout(WAIT)


def test_namespaces_of_its_own(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(
        place,
        """
        for flags in (0x10000000, 0x10020000, 0x20000, 0x40000000, 0x20000000,
                      0x08000000, 0x04000000, 0x02000000, 0x80):
            if libc.unshare(flags) == 0: escaped(hex(flags))
        for name in os.listdir('/proc/1/ns'):
            tries(lambda: libc.setns(os.open(f'/proc/1/ns/{name}', os.O_RDONLY), 0) + 1)
        for flags in (0x10000000, 0x10000000 | 1 << 40):
            pid = libc.syscall(CALLS['clone'], ctypes.c_long(flags | 17), 0, 0, 0, 0)
            if pid == 0: os._exit(0)
            if pid > 0: escaped('clone')
        args = struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)
        pid = libc.syscall(CALLS['clone3'], args, 64)
        if pid == 0: os._exit(0)
        if pid > 0: escaped('clone3')
        """,
    )


def test_changing_the_mounts(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(
        place,
        """
        tries(lambda: libc.umount2(b'/room/.env', 2) + 1, lambda: libc.umount2(b'/proc/sys', 2) + 1,
              lambda: libc.mount(b'proc', b'/tmp', b'proc', 0, None) + 1,
              lambda: libc.mount(None, b'/usr', None, 4096 | 32, None) + 1,
              lambda: libc.chroot(b'/room') + 1,
              lambda: os.mknod('/tmp/disk', stat.S_IFBLK | 0o666, os.makedev(254, 0)) or 1,
              lambda: open('/usr/bin/planted', 'w'), lambda: open('/etc/passwd', 'a'))
        """,
    )


def test_the_kernels_own_memory_and_switches(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(
        place,
        """
        for path in ('/proc/kcore', '/dev/mem', '/dev/kmem', '/dev/port', '/dev/kmsg', '/proc/kmsg',
            '/dev/sda', '/dev/vda', '/dev/kvm', '/dev/fuse'):
            tries(lambda: open(path, 'rb', buffering=0).read(1))
        for path, value in (('/proc/sys/kernel/core_pattern', '|/tmp/x'), ('/proc/sys/kernel/modprobe',
            '/tmp/x'), ('/proc/sysrq-trigger', 'h'),
                            ('/proc/sys/fs/binfmt_misc/register', ':x:M::x::/tmp/x:'),
                            ('/sys/kernel/uevent_helper', '/tmp/x'),
                            ('/proc/1/oom_score_adj', '-1000'), ('/proc/self/oom_score_adj', '-1000'),
                            ('/proc/1/uid_map', '0 0 1'), ('/proc/self/uid_map', '0 0 1'),
                            ('/sys/fs/cgroup/release_agent', '/tmp/x'), ('/sys/fs/cgroup/cgroup.procs', '1')):
            tries(lambda: os.write(os.open(path, os.O_WRONLY), value.encode()))
        """,
    )


def test_typing_into_a_terminal(house: tuple[Place, Path]) -> None:
    place, _ = house
    command = place.start(
        "/usr/bin/python3", "-c",
        "import fcntl, ctypes\nlibc = ctypes.CDLL(None)\n"
        "for request in (0x5412, 0x541c):\n"
        "    for high in (0, 1 << 32, 0xdeadbeef << 32):\n"
        f"        if libc.syscall({NUMBERS['ioctl']}, 0, ctypes.c_ulong(request | high), b'x') == 0: print('ESCAPED')\n"
        "print('end')",
        pty={"rows": 24, "cols": 80},
    )  # fmt: skip
    command.started()
    master = command.line.fds.pop()
    output = b""
    while b"end" not in output:
        output += os.read(master, 1000)
    os.close(master)
    assert b"ESCAPED" not in output
    assert command.wait().code == 0


def test_the_hosts_sockets_and_processes(house: tuple[Place, Path], tmp_path: Path) -> None:
    place, _ = house
    name = f"\0escape-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.create_server(("127.0.0.1", 0)) as loopback:
        abstract.bind(name)
        abstract.listen()
        attempt(
            place,
            """
            tries(lambda: socket.socket(socket.AF_UNIX).connect(eval(sys.argv[1])) or 1,
                lambda: socket.create_connection(('127.0.0.1', int(sys.argv[2]))),
                  lambda: socket.socket(40, socket.SOCK_STREAM),
                  lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), lambda: socket.socket(17, 3, 0))
            if len([p for p in os.listdir('/proc') if p.isdigit()]) > 8: escaped('sees others')
            for pid in range(2, 40000):
                if pid != os.getpid():
                    try: os.kill(pid, 0); escaped(pid) if not os.path.exists(f'/proc/{pid}') else None
                    except OSError: pass
            """,
            repr(name),
            str(loopback.getsockname()[1]),
        )


def test_keyrings_and_shared_memory_of_the_host(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(
        place,
        """
        for ring in (-1, -2, -3, -4, -5):
            for operation in (0, 11):
                if libc.syscall(CALLS['keyctl'], operation, ring, 0, 0) > 0: escaped('keyring')
        if len(open('/proc/sysvipc/shm').readlines()) > 1: escaped('shm')
        if os.listdir('/dev/shm'): escaped('/dev/shm')
        """,
    )


def test_privilege_by_a_program_of_the_hosts(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(
        place,
        """
        import subprocess
        for program in ('su', 'sudo', 'mount', 'newuidmap', 'pkexec', 'passwd', 'bwrap', 'unshare'):
            for args in (['-c', 'id -u'], ['-n', 'id', '-u'], ['--user', '--map-root-user', 'id', '-u'],
                ['-Ur', 'id', '-u'],
                         ['--unshare-all', '--ro-bind', '/', '/', '--uid', '0', 'id', '-u']):
                try:
                    out = subprocess.run([program, *args], capture_output=True, stdin=subprocess.DEVNULL,
                                         timeout=20).stdout.strip()
                    if out == b'0': escaped(program)
                except (OSError, subprocess.TimeoutExpired): pass
        tries(lambda: os.setuid(0) or 1, lambda: os.setgid(0) or 1, lambda: os.setresuid(0, 0, 0) or 1,
            lambda: os.setgroups([0]) or 1)
        """,
    )


def test_outliving_the_place(guest: Path) -> None:
    with launch(guest) as place:
        place.setup(uid=1000, gid=1000)
        place.run(
            "/usr/bin/python3",
            "-c",
            textwrap.dedent("""
            import os, signal
            for n in range(1, 65):
                try: signal.signal(n, signal.SIG_IGN)
                except (OSError, ValueError): pass
            for _ in range(3):
                if os.fork(): os._exit(0)
                os.setsid()
            for fd in range(3): os.close(fd)
            while True: signal.pause()
        """),
        )
        everyone = pidfds_of_all_in(place)
        assert len(everyone) >= 3
        place.close()
        assert_all_end(everyone)


def test_starving_the_guest_of_memory_and_processes_ends_nothing_but_the_tenant(guest: Path) -> None:
    with launch(guest) as place:
        place.setup(uid=1000, gid=1000, rlimits=[[9, 1 << 29, 1 << 29], [7, 64, 64]])
        attempt(
            place,
            "tries(lambda: [os.dup(0) for _ in range(10**6)])\n"
            "try: x = b'x' * (1 << 30); escaped()\nexcept MemoryError: pass",
        )


def test_the_guests_own_limits_are_out_of_reach(house: tuple[Place, Path]) -> None:
    place, _ = house
    attempt(place, "import resource\nfor r in range(16): tries(lambda: resource.prlimit(1, r, (0, 0)))")


def test_no_descriptor_of_the_launchers_reaches_a_tenant(guest: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    leaked = os.open(secret, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    with launch(guest, leak=(leaked,)) as place:
        place.setup(uid=1000, gid=1000)
        # Nothing but `os` is imported: some modules open files of their own.
        code = "import os\nfor n in range(3, 256):\n  try: print(n, os.pread(n, 100, 0))\n  except OSError: pass"
        assert place.python(code).out == b""
    os.close(leaked)
