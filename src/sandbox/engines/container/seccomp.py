"""The system call filter that the container starts with.

The engines' own filter forbids mounting, and the guest must mount: it builds what the plan shows. So the guest starts
with this filter, which refuses what neither it nor a tenant needs. Before any tenant exists the guest adds its own
filter (guest/filter.c), which refuses all of this too, and mounts and namespaces as well.
"""

from __future__ import annotations

REFUSED = (
    # Loading code into the kernel, tracing it, and handling its page faults.
    *("bpf", "perf_event_open", "userfaultfd", "init_module", "finit_module", "delete_module"),
    *("kexec_load", "kexec_file_load"),
    # Work that no filter sees.
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    # Other processes' memory and descriptors.
    *("process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "move_pages", "migrate_pages"),
    # Opening files by handle bypasses the permissions of the directories above them.
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init"),
    # These change the whole machine.
    *("reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "settimeofday", "clock_settime"),
    *("clock_settime64", "adjtimex", "clock_adjtime", "clock_adjtime64", "iopl", "ioperm", "lookup_dcookie"),
    *("add_key", "request_key"),
)
NO_SUCH_CALL = 38  # ENOSYS: libraries then use something else
NOT_PERMITTED = 1


def profile() -> str:
    """The filter as JSON, as the engines read it. They ignore calls that the machine does not have."""
    import json

    without = [name for name in REFUSED if name.startswith("io_uring")]
    refused = [name for name in REFUSED if name not in without]
    rules = [
        {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": number}
        for names, number in ((refused, NOT_PERMITTED), (without, NO_SUCH_CALL))
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})
