"""QEMU's command line. A clone must have exactly the devices of its template, in the same order."""

from __future__ import annotations

import os

from sandbox.engines.machine.acceleration import KVM
from sandbox.engines.machine.room_paths import DIRECTORY
from sandbox.errors import EngineUnavailable, Message

# Descriptors arrive in this order (guest/machine_launch.c).
CONTROL, SYSTEM, SYSTEM_BYTES, FILES, FILES_BYTES, MONITOR = range(10, 16)

MISSING = Message(
    "QEMU is not installed: `apt install qemu-system-x86`, `dnf install qemu-system-x86` or `pacman -S qemu-system-x86`"
)
# Everything except what is slow to emulate: copying byte by byte in one instruction, five-level page tables, and
# features that add work to each of the kernel's accesses to a program's memory.
_EMULATED = ("-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm,-la57,-smap,-pku,-pks")
_ACCELERATED = ("-accel", "kvm", "-cpu", "host")
PROGRAM = "/usr/bin/qemu-system-x86_64"


def find_qemu() -> str:
    """The system's QEMU. Raises EngineUnavailable."""
    if not os.access(PROGRAM, os.X_OK):
        raise EngineUnavailable(MISSING)
    return PROGRAM


def command(
    memory_mb: int,
    cpus: int,
    accelerated: str,
    *,
    template: bool,
    saved: bool = False,
    khz: int = 0,
    for_root: bool = True,
) -> list[str]:
    """The command line of a machine: one that will become a template, or a clone of a template or a `saved` machine.

    `khz` is the frequency of the processor's time stamp counter, and `for_root` says whether a tenant may be root of
    the machine; only a machine that boots needs them.
    """
    return [
        PROGRAM,
        *("-M", "microvm,acpi=on,pit=on,pic=on,rtc=on,memory-backend=ram"),
        *(_ACCELERATED if accelerated == KVM else _EMULATED),
        *("-smp", str(cpus), "-m", str(memory_mb)),
        *("-object", f"memory-backend-file,id=ram,size={memory_mb}M,mem-path={DIRECTORY}/ram,{_shared(template)}"),
        *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot"),
        *("-serial", f"file:{DIRECTORY}/console" if template else "null"),
        # A clone has its kernel in the saved memory; QEMU would read the file into its own memory.
        *(_kernel(_kernel_words(accelerated, khz, for_root)) if template else ()),
        # No announcements to neighbours: there are none, and a clone takes 40 ms to translate that code.
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


def _kernel(words: str) -> list[str]:
    return ["-kernel", f"{DIRECTORY}/kernel", "-initrd", f"{DIRECTORY}/initramfs", "-append", words]


def _port(name: str, fd: int) -> list[str]:
    port = f"virtserialport,chardev={name},name=sandbox.{name}"
    return ["-chardev", f"socket,id={name},fd={fd}", "-device", port]


def _disk(name: str, fd: int) -> list[str]:
    """Large transfers go over a disk, whose content the file server provides (guest/share_bytes.c)."""
    node = f"driver=nbd,node-name={name}-bytes,server.type=fd,server.str={fd}"
    return ["-blockdev", node, "-device", f"virtio-blk-device,drive={name}-bytes,serial={name},write-cache=off"]


def _shared(template: bool) -> str:
    # The template writes its memory into the file; clones map it privately and share the pages they do not change.
    return "share=on" if template else "share=off"


# Turns off work that a kernel does whenever a program starts or two programs switch, and that nobody in such a machine
# needs: under emulation it is a third of a short command's time. The machine is the wall; its kernel's own hardening
# only slows it down.
_LEAN = (
    *("mitigations=off", "lsm=landlock,yama", "psi=0", "noautogroup", "audit=0", "init_on_alloc=0"),
    *(
        "hardened_usercopy=off",
        "numa_balancing=disable",
        "deferred_probe_timeout=0",
        "transparent_hugepage=madvise",
        "nowatchdog",
    ),
    # Housekeeping that would wake an idle machine every second or more often.
    *("sysctl.vm.stat_interval=3600", "sysctl.vm.compaction_proactiveness=0"),
)
# Control groups, which only root could use: their accounting is part of every new process and page.
_NO_ROOT = ("cgroup_disable=memory,cpu,pids",)


def _kernel_words(accelerated: str, khz: int, for_root: bool) -> str:
    words = "console=ttyS0 quiet panic=-1 random.trust_cpu=on"
    if accelerated == KVM:
        return words
    # Under emulation the kernel cannot calibrate the processor's clock against another clock in time. On a busy host it
    # cannot validate it by timer ticks either, and would use those as its clock, which stops when QEMU is stopped. An
    # emulated processor does not speculate, so there is nothing to mitigate. Code at a random address would have to be
    # translated each time, and a command would take three times as long.
    lean = " ".join(_LEAN if for_root else _LEAN + _NO_ROOT)
    return f"{words} {lean} norandmaps tsc=reliable tsc_early_khz={khz}"
