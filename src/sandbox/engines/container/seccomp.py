"""The system call filter that the container starts with.

The engines' own lets no container mount, and the guest must: it builds what the plan shows. So the guest starts with
this one, which refuses what neither it nor a tenant needs. Before any tenant exists it puts its own filter
(guest/filter.c) on top, which refuses all of this too, and mounts and namespaces besides.
"""

from __future__ import annotations

REFUSED = (
    # Code, tracing and paging of the kernel's own.
    *("bpf", "perf_event_open", "userfaultfd", "init_module", "finit_module", "delete_module"),
    *("kexec_load", "kexec_file_load"),
    # Work that no filter sees.
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    # Other processes' memory and descriptors.
    *("process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "move_pages", "migrate_pages"),
    # Files by handle go round every directory on the way.
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init"),
    # The machine's, never a process's.
    *("reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "settimeofday", "clock_settime"),
    *("clock_settime64", "adjtimex", "clock_adjtime", "clock_adjtime64", "iopl", "ioperm", "lookup_dcookie"),
    *("add_key", "request_key"),
)
NO_SUCH_CALL = 38  # ENOSYS: libraries then do without
NOT_PERMITTED = 1


def profile() -> str:
    """As the engines read it. They leave out calls that the machine does not have."""
    import json

    without = [name for name in REFUSED if name.startswith("io_uring")]
    refused = [name for name in REFUSED if name not in without]
    rules = [
        {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": number}
        for names, number in ((refused, NOT_PERMITTED), (without, NO_SUCH_CALL))
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})
