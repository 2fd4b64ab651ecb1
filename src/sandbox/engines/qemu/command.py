"""QEMU's command line. A clone must have exactly the devices of its template, in the same order."""

from __future__ import annotations

import os

from sandbox.engines.machine.acceleration import KVM
from sandbox.engines.machine.place import DIRECTORY
from sandbox.errors import EngineUnavailable, Message

# Descriptors arrive in this order (guest/machine_launch.c).
CONTROL, SYSTEM, SYSTEM_BYTES, FILES, FILES_BYTES, MONITOR = range(10, 16)

MISSING = Message(
    "QEMU is not installed: `apt install qemu-system-x86`, `dnf install qemu-system-x86` or `pacman -S qemu-system-x86`"
)
# Everything but what is slow to emulate: copying byte by byte in one instruction, page tables of five levels, and what
# makes the kernel do something at each of its own accesses to a program's memory.
EMULATED = "max,-erms,-fsrm,-la57,-smap,-pku,-pks"
PROGRAM = "/usr/bin/qemu-system-x86_64"


def find_qemu() -> str:
    """The system's QEMU. Raises EngineUnavailable."""
    if not os.access(PROGRAM, os.X_OK):
        raise EngineUnavailable(MISSING)
    return PROGRAM


def command(
    memory_mb: int, cpus: int, accelerated: str, *, template: bool, saved: bool = False, khz: int = 0
) -> list[str]:
    """The words that start a machine: one to make a template of, or a clone of it, or of a `saved` machine.

    `khz` is how fast the processor counts; only a machine that boots needs it.
    """
    return [
        PROGRAM,
        *("-M", "microvm,acpi=on,pit=on,pic=on,rtc=on,memory-backend=ram"),
        *(
            ("-accel", "kvm", "-cpu", "host")
            if accelerated == KVM
            else ("-accel", "tcg,thread=multi", "-cpu", EMULATED)
        ),
        *("-smp", str(cpus), "-m", str(memory_mb)),
        *("-object", f"memory-backend-file,id=ram,size={memory_mb}M,mem-path={DIRECTORY}/ram,{_shared(template)}"),
        *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot"),
        *("-serial", f"file:{DIRECTORY}/console" if template else "null"),
        # A clone has its kernel in the memory it was saved with; QEMU would read the file into memory of its own.
        *(_kernel(accelerated, khz) if template else ()),
        # No announcing itself to neighbours that it does not have: the code takes a clone 40 ms to translate.
        *("-netdev", "user,id=net", "-device", "virtio-net-device,netdev=net,guest_announce=off"),
        *("-device", "virtio-serial-device"),
        *_port("control", CONTROL),
        *_port("system", SYSTEM),
        *_port("files", FILES),
        *_disk("system", SYSTEM_BYTES),
        *_disk("files", FILES_BYTES),
        *("-chardev", f"socket,id=monitor,fd={MONITOR}", "-mon", "chardev=monitor,mode=control"),
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
        *(() if template else ("-incoming", "defer")),
        # What `xen-save-devices-state` writes has no such section.
        *(("-global", "migration.send-configuration=off") if saved else ()),
    ]


def _kernel(accelerated: str, khz: int) -> list[str]:
    words = _kernel_words(accelerated, khz)
    return ["-kernel", f"{DIRECTORY}/kernel", "-initrd", f"{DIRECTORY}/initramfs", "-append", words]


def _port(name: str, fd: int) -> list[str]:
    port = f"virtserialport,chardev={name},name=sandbox.{name}"
    return ["-chardev", f"socket,id={name},fd={fd}", "-device", port]


def _disk(name: str, fd: int) -> list[str]:
    """What is large goes over a disk, whose content the file server is (guest/share_bytes.c)."""
    node = f"driver=nbd,node-name={name}-bytes,server.type=fd,server.str={fd}"
    return ["-blockdev", node, "-device", f"virtio-blk-device,drive={name}-bytes,serial={name},write-cache=off"]


def _shared(template: bool) -> str:
    # The template writes its memory into the file; clones map it privately and share the pages they do not change.
    return "share=on" if template else "share=off"


# What a kernel does at every start of a program or switch between two, and nobody in such a machine asks for: emulated,
# it is a third of a short command's time. The wall is the machine; its kernel's own hardening only slows it down.
_LEAN = (
    *("mitigations=off", "lsm=landlock,yama", "psi=0", "noautogroup", "audit=0", "init_on_alloc=0"),
    *(
        "hardened_usercopy=off",
        "numa_balancing=disable",
        "deferred_probe_timeout=0",
        "transparent_hugepage=madvise",
        "nowatchdog",
    ),
)


def _kernel_words(accelerated: str, khz: int) -> str:
    words = "console=ttyS0 quiet panic=-1 random.trust_cpu=on"
    if accelerated == KVM:
        return words
    # Emulated, the kernel cannot measure the processor's clock against another one in time, nor, on a busy host, judge
    # it by the ticks it gets: it would take those for its clock, which stops when QEMU is stopped. An emulated
    # processor does not guess ahead, so that there is nothing to mitigate; and code that lies elsewhere each time would
    # have to be translated each time: a command then takes three times as long.
    return f"{words} {' '.join(_LEAN)} norandmaps tsc=reliable tsc_early_khz={khz}"
