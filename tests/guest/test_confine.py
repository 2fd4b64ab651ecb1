"""What QEMU is held to in its room: it opens the machine's memory for writing, and changes no file.

The program that `guest --launch` starts is Python here, with the template as the engine shows it, and without a room
around it: what is refused is refused by its confinement alone.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.walls

PYTHON = "/usr/bin/python3"
SCRIPT = r"""
import ctypes, fcntl, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
ram, other = "/.machine/ram", "/shared/file"
fd = os.open(ram, os.O_RDWR)
memory = mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
memory[:3] = b"own"  # as QEMU uses it

def call(number, *words):
    words = [w.encode() if isinstance(w, str) else w for w in words]
    if libc.syscall(number, *[ctypes.c_char_p(w) if isinstance(w, bytes) else ctypes.c_long(w) for w in words]) < 0:
        raise OSError(ctypes.get_errno(), "")

FLAGS, CLONE, PUNCH, XFLAGS = 0x40086602, 0x40049409, 0x4030582b, 0x401c5820
args = ctypes.create_string_buffer(64)
hole = ctypes.create_string_buffer(bytes(16) + (4096).to_bytes(8, "little"), 48)
ways = {
    "write": lambda: os.write(fd, b"x"),
    "pwrite": lambda: os.pwrite(fd, b"x", 0),
    "sendfile": lambda: os.sendfile(fd, os.open("/usr/bin/env", os.O_RDONLY), 0, 10),
    "copy_file_range": lambda: os.copy_file_range(os.open("/usr/bin/env", os.O_RDONLY), fd, 10),
    "shared map": lambda: mmap.mmap(fd, 4096, flags=mmap.MAP_SHARED),
    "shared map, checked": lambda: mmap.mmap(fd, 4096, flags=mmap.MAP_SHARED | mmap.MAP_PRIVATE),
    "ftruncate": lambda: os.ftruncate(fd, 0),
    "truncate": lambda: os.truncate(ram, 0),
    "O_TRUNC": lambda: os.open(ram, os.O_RDWR | os.O_TRUNC),
    "openat2": lambda: call(437, -100, ram, b"\x02\x02" + bytes(22), 24),
    "fallocate": lambda: os.posix_fallocate(fd, 0, 1 << 20),
    "punch": lambda: call(285 if os.uname().machine == "x86_64" else 47, fd, 3, 0, 4096),
    "punch by ioctl": lambda: fcntl.ioctl(fd, PUNCH, hole.raw),
    "clone": lambda: fcntl.ioctl(fd, CLONE, os.open("/usr/bin/env", os.O_RDONLY)),
    "flags": lambda: fcntl.ioctl(fd, FLAGS, args),
    "extended flags": lambda: fcntl.ioctl(fd, XFLAGS, args),
    "setxattr": lambda: os.setxattr(other, "user.x", b"1"),
    "fsetxattr": lambda: os.setxattr(fd, "user.x", b"1"),
    "lsetxattr": lambda: os.setxattr(other, "user.x", b"1", follow_symlinks=False),
    "removexattr": lambda: os.removexattr(other, "user.kept"),
    "setxattrat": lambda: call(463, -100, other, 0, "user.x", args.raw, 16),
    "file_setattr": lambda: call(469, -100, other, args.raw, 24, 0),
    "chmod": lambda: os.chmod(other, 0o777),
    "fchmod": lambda: os.fchmod(fd, 0o777),
    "fchmodat2": lambda: call(452, -100, other, 0o777, 0),
    "chown": lambda: os.chown(other, os.getuid(), os.getgid()),
    "lchown": lambda: os.lchown(other, os.getuid(), os.getgid()),
    "utime": lambda: os.utime(other, (1, 1)),
    "futimens": lambda: os.utime(fd, (1, 1)),
    "unlink": lambda: os.unlink(ram),
    "rename": lambda: os.rename(other, other + "2"),
    "link": lambda: os.link(other, other + "2"),
    "symlink": lambda: os.symlink("x", other + "2"),
    "mkdir": lambda: os.mkdir("/shared/new"),
    "mknod": lambda: os.mknod("/shared/new"),
    "create": lambda: os.open("/shared/new", os.O_RDWR | os.O_CREAT),
    "open for writing": lambda: os.open(other, os.O_RDWR),
    "read another": lambda: os.open(other, os.O_RDONLY),
}
if os.uname().machine == "x86_64":
    ways["utimes"] = lambda: call(235, other, 0)
    ways["futimesat"] = lambda: call(261, -100, other, 0)
    ways["old utime"] = lambda: call(132, other, 0)
    ways["creat"] = lambda: call(85, ram, 0o644)
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for name, way in ways.items():
    try:
        way()
        print(name, file=sys.stderr)
    except OSError:
        pass
print("tried", file=sys.stderr)
"""


def test_it_changes_no_file_whatever_it_calls(guest: Path, tmp_path: Path) -> None:
    machine, shared = tmp_path / "machine", tmp_path / "shared"
    machine.mkdir()
    shared.mkdir()
    (machine / "ram").write_bytes(b"template" * 4096)
    (shared / "file").write_bytes(b"kept")
    files = [machine / "ram", shared / "file"]
    os.setxattr(shared / "file", "user.kept", b"1")
    before = [(one.read_bytes(), *_state(one)) for one in files]
    command = [
        "bwrap", "--unshare-user", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
        "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--dev", "/dev", "--proc", "/proc",
        "--bind", str(machine), "/.machine", "--bind", str(shared), "/shared", "--ro-bind", str(guest), "/guest",
        "/guest", "--launch", PYTHON, "-ISc", SCRIPT,
    ]  # fmt: skip
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b"."], [ours.fileno()])
        done = subprocess.run(command, stdin=theirs.fileno(), capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == "tried\n", done.stderr
    assert [(one.read_bytes(), *_state(one)) for one in files] == before
    assert sorted(one.name for one in shared.iterdir()) == ["file"]


def _state(path: Path) -> tuple[object, ...]:
    info = path.stat()
    times = (info.st_mtime_ns, info.st_ctime_ns)
    return info.st_mode, info.st_uid, info.st_blocks, info.st_nlink, times, os.listxattr(path)
