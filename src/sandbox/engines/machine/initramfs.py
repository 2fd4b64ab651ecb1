"""The machine's first files: our guest as its first program, the modules it loads, and nothing else."""

from __future__ import annotations

from sandbox.engines.machine.kernel import MODULES, InstalledKernel, read_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_DIRECTORY, _FILE = 0o040755, 0o100644
_PROGRAM = 0o100755


# Run once before the machine is saved, so that clones have what most commands need in memory, and share it.
WARM = (
    "true",
    "sh -c :",
    "bash -c :",
    "env true",
    "ls /usr",
    "cat /dev/null",
    "git --version",
    "git status",
    "python3 -c print(1)",
    "/usr/bin/python3 -c import(os)",
    "sleep 0",
    "head -c1 /dev/null",
    "grep -r none /dev/null",
    "find /dev/null",
    "sed -n p /dev/null",
)


def initramfs(kernel: InstalledKernel, guest: str, modules: Sequence[str] = MODULES) -> bytes:
    """An archive in the format that the kernel unpacks (cpio, "newc"); the same input gives the same bytes."""
    with open(guest, "rb") as file:
        program = file.read()
    archive = _entry(1, "dev", _DIRECTORY) + _entry(2, "modules", _DIRECTORY) + _entry(3, "init", _PROGRAM, program)
    archive += _entry(4, "warm", _FILE, "\n".join(WARM).encode())
    for number, path in enumerate(kernel.files(modules)):
        archive += _entry(number + 5, f"modules/{number:03}.ko", _FILE, read_module(path))
    return archive + _entry(0, "TRAILER!!!", 0)


def _entry(inode: int, name: str, mode: int, content: bytes = b"") -> bytes:
    text = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(text), 0)
    head = b"070701" + b"".join(b"%08X" % one for one in fields) + text
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
