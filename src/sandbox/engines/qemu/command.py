"""QEMU's command line. A clone must have exactly the devices of its template, in the same order."""

from __future__ import annotations

import os

from sandbox.errors import EngineUnavailable, Message

# The places of the machine in its room. Descriptors arrive in this order (guest/machine_launch.c).
DIRECTORY = "/.machine"
CONTROL, FILES, MONITOR = 10, 11, 12

MISSING = Message(
    "QEMU is not installed: `apt install qemu-system-x86`, `dnf install qemu-system-x86` or `pacman -S qemu-system-x86`"
)
PROGRAM = "/usr/bin/qemu-system-x86_64"


def find_qemu() -> str:
    """The system's QEMU. Raises EngineUnavailable."""
    if not os.access(PROGRAM, os.X_OK):
        raise EngineUnavailable(MISSING)
    return PROGRAM


def command(memory_mb: int, cpus: int, *, template: bool) -> list[str]:
    """The words that start a machine: one to make a template of, or a clone of it."""
    return [
        PROGRAM,
        *("-M", "microvm,acpi=on,pit=on,pic=on,rtc=on,memory-backend=ram", "-accel", "tcg,thread=multi"),
        *("-cpu", "max", "-smp", str(cpus), "-m", str(memory_mb)),
        *("-object", f"memory-backend-file,id=ram,size={memory_mb}M,mem-path={DIRECTORY}/ram,{_shared(template)}"),
        *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot"),
        *("-serial", f"file:{DIRECTORY}/console" if template else "null"),
        *("-kernel", f"{DIRECTORY}/kernel", "-initrd", f"{DIRECTORY}/initramfs", "-append", _kernel_words()),
        *("-netdev", "user,id=net", "-device", "virtio-net-device,netdev=net"),
        *("-device", "virtio-serial-device"),
        *("-chardev", f"socket,id=control,fd={CONTROL}"),
        *("-device", "virtserialport,chardev=control,name=sandbox.control"),
        *("-chardev", f"socket,id=files,fd={FILES}"),
        *("-device", "virtserialport,chardev=files,name=sandbox.files"),
        *("-chardev", f"socket,id=monitor,fd={MONITOR}", "-mon", "chardev=monitor,mode=control"),
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
        *(() if template else ("-incoming", "defer")),
    ]


def _shared(template: bool) -> str:
    # The template writes its memory into the file; clones map it privately and share the pages they do not change.
    return "share=on" if template else "share=off"


def _kernel_words() -> str:
    # Emulated, the kernel cannot measure the processor's clock against another one in time.
    return f"console=ttyS0 quiet panic=-1 random.trust_cpu=on tsc_early_khz={_khz()}"


def _khz() -> int:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("cpu MHz"):
                return int(float(line.partition(":")[2])) * 1000
    return 2_000_000
