"""The bubblewrap engine: `bwrap` makes the namespaces and first mounts, and the guest does the rest from inside.

bubblewrap, because distributions ship and harden it, and their AppArmor profiles allow it. The guest, because what
bubblewrap cannot do (the network inside, masks, Landlock, the nested user namespace, running commands) must happen
before any untrusted code exists, and without a second launcher.
"""

from __future__ import annotations

import os

from sandbox.engines.base import Capabilities, Engine, Finding
from sandbox.engines.launch import Launch
from sandbox.errors import EngineUnavailable, Message, SandboxError, WallError
from sandbox.guest.binary import guest_binary
from sandbox.plan import HOSTNAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.engines.local import LocalStart

ARGUMENTS = 4  # bwrap reads its arguments here: on the command line, `ps` would show them
GUEST = 5  # the guest program: a path in /proc/1/cmdline would show tenants where we are installed
STAGE = "/.host"  # where the guest, and only the guest, sees the host's files while it sets up

# The same for every sandbox, so that bwrap can start before the plan is made.
NAMESPACES = (
    # Every kind of namespace. A user namespace for root too: then tenants have no capability over the host.
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"),
    # As uid 0: otherwise bwrap puts a second user namespace between the guest and its network namespace.
    *("--uid", "0", "--gid", "0", "--hostname", HOSTNAME),
    # The guest is PID 1: it reaps orphans, and the kernel kills everything when it ends.
    *("--as-pid-1", "--clearenv", "--new-session"),
    # What the guest needs for the set-up; it drops all of these before any tenant exists.
    *("--cap-drop", "ALL"),
    *("--cap-add", "CAP_SYS_ADMIN"),  # mounts, the nested user namespace
    *("--cap-add", "CAP_NET_ADMIN"),  # routes, nftables, transparent sockets
    *("--cap-add", "CAP_NET_BIND_SERVICE"),  # port 53
    *("--cap-add", "CAP_SETFCAP"),  # mapping uid 0 of the parent namespace
    *("--cap-add", "CAP_DAC_OVERRIDE"),  # overlayfs uses its mounter's rights in a directory of mode 000
    *("--proc", "/proc", "--dev", "/dev"),
    # The host's files for the guest to build from. It mounts what the plan shows, each with one system call where
    # bwrap needs several and rereads the mount table, and removes this before any tenant exists.
    *("--dev-bind", "/", STAGE, "--chdir", "/"),
)


class Bubblewrap(Engine):
    name = "bubblewrap"
    can = Capabilities(
        own_root=True,
        namespace=True,
        fuse=True,
        overlay=True,
        tripwires=True,
        gate="sockets",
        limits=True,
        checkpoint="files",
        waits=True,
    )

    def start(self) -> LocalStart:
        bwrap = find_bwrap()
        if bwrap is None:
            raise EngineUnavailable(MISSING)
        launch = _launch(bwrap)
        from sandbox.engines.local import LocalStart  # bwrap runs while this is loaded

        return LocalStart(launch, explain, STAGE, lambda said: _launch(bwrap) if PASSING in said else None)

    def findings(self) -> list[Finding]:
        bwrap = find_bwrap()
        if bwrap is None:
            return [Finding(self.name, False, "not installed", MISSING)]
        from sandbox.engines.doctor import findings

        return findings(self.name, bwrap, self.start)


MISSING = Message(
    "bubblewrap (`bwrap`) is not installed: `apt install bubblewrap`, `dnf install bubblewrap` or "
    "`pacman -S bubblewrap`; `sandbox doctor` shows what else this machine can do"
)

# Not from PATH: a project could put a program there, which would run outside the walls.
PLACES = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")


def find_bwrap() -> str | None:
    """The system's bwrap."""
    return next((path for path in PLACES if os.access(path, os.X_OK)), None)


def _launch(bwrap: str) -> Launch:
    guest, arguments = os.open(guest_binary(), os.O_RDONLY | os.O_CLOEXEC), os.memfd_create("arguments")
    try:
        os.write(arguments, b"".join(one.encode() + b"\0" for one in NAMESPACES))
        os.lseek(arguments, 0, os.SEEK_SET)
        return Launch(
            [bwrap, "--args", str(ARGUMENTS), "--", f"/proc/self/fd/{GUEST}"],
            fds=[(arguments, ARGUMENTS), (guest, GUEST)],
        )
    finally:
        os.close(arguments)
        os.close(guest)


# bwrap lists the mounts of the host, then changes the flags of each, and ends if one is gone by then: those of a
# container that has just ended, for example.
PASSING = "Unable to apply mount flags"


def explain(said: str) -> SandboxError:
    """Turns bwrap's last message into an error that names the cause and the remedy."""
    if "namespace" in said or "uid map" in said or "Operation not permitted" in said:
        from sandbox.engines.namespaces import why_no_namespaces

        return EngineUnavailable(
            "bubblewrap could not create namespaces ({said}). {cause}", said=said, cause=why_no_namespaces()
        )
    if not said:
        return WallError("bubblewrap failed without a message; run `sandbox doctor`")
    return WallError("bubblewrap could not build the walls: {said}", said=said)
