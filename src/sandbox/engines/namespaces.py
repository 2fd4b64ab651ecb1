"""Why this machine does not let bubblewrap make namespaces, and what helps."""

from __future__ import annotations

import os

from sandbox.errors import Message

USERNS_SWITCHES = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
)
APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def why_no_namespaces() -> str:
    """The likely cause and its remedy, as a sentence for an error message."""
    if (_read("/proc/1/comm") or "").strip() == "guest":
        return Message("This is already a sandbox, and sandboxes cannot be nested: run the command directly.")
    for path, off, remedy in USERNS_SWITCHES:
        if _read(path) == off:
            return Message("User namespaces are disabled; run `{command}` as root.", command=remedy)
    if _read(APPARMOR) == "1":
        return Message(
            "AppArmor lets only known programs make user namespaces, as on Ubuntu 24.04. Update the `bubblewrap` and "
            "`apparmor-profiles` packages so that bwrap has a profile, or run "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` as root."
        )
    if not os.path.exists("/proc/self/ns/user"):
        return Message("This kernel was built without user namespaces (CONFIG_USER_NS).")
    from sandbox.engines import nesting

    if nesting.in_container() and (found := nesting.reasons()):
        return found[0] if len(found) == 1 else Message("{one} {other}", one=found[0], other=found[1])
    return Message("Something forbids new namespaces here: a seccomp profile, SELinux, or a container's settings.")


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
