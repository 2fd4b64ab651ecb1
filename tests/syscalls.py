"""Numbers of system calls on the machine that runs the tests. From 424 on they are the same everywhere."""

from __future__ import annotations

import platform

_X86_64 = {
    "acct": 163, "add_key": 248, "bpf": 321, "chroot": 161, "clone": 56, "delete_module": 176, "fanotify_init": 300,
    "finit_module": 313, "getpid": 39, "init_module": 175, "ioctl": 16, "ioperm": 173, "iopl": 172, "kcmp": 312,
    "kexec_load": 246, "keyctl": 250, "memfd_create": 319, "modify_ldt": 154, "mount": 165, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "perf_event_open": 298, "personality": 135, "pivot_root": 155, "prlimit64": 302,
    "process_vm_readv": 310, "process_vm_writev": 311, "ptrace": 101, "quotactl": 179, "reboot": 169,
    "request_key": 249, "setns": 308, "setrlimit": 160, "socket": 41, "socketpair": 53, "swapon": 167, "syslog": 103,
    "umount2": 166, "unshare": 272, "userfaultfd": 323,
}  # fmt: skip
_AARCH64 = {
    "acct": 89, "add_key": 217, "bpf": 280, "chroot": 51, "clone": 220, "delete_module": 106, "fanotify_init": 262,
    "finit_module": 273, "getpid": 172, "init_module": 105, "ioctl": 29, "kcmp": 272, "kexec_load": 104, "keyctl": 219,
    "memfd_create": 279, "mount": 40, "name_to_handle_at": 264, "open_by_handle_at": 265, "perf_event_open": 241,
    "personality": 92, "pivot_root": 41, "prlimit64": 261, "process_vm_readv": 270, "process_vm_writev": 271,
    "ptrace": 117, "quotactl": 60, "reboot": 142, "request_key": 218, "setns": 268, "setrlimit": 164, "socket": 198,
    "socketpair": 199, "swapon": 224, "syslog": 116, "umount2": 39, "unshare": 97, "userfaultfd": 282,
}  # fmt: skip
_EVERYWHERE = {
    "clone3": 435, "fchmodat2": 452, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433,
    "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425, "mount_setattr": 442, "move_mount": 429,
    "open_tree": 428, "open_tree_attr": 467, "openat2": 437, "pidfd_getfd": 438, "pidfd_open": 434,
}  # fmt: skip

X86_64 = platform.machine() == "x86_64"
#: A call that this machine lacks (x86_64 alone has `iopl`) is not in here.
NUMBERS = _EVERYWHERE | (_X86_64 if X86_64 else _AARCH64)
