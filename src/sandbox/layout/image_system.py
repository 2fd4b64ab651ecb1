"""The root of an image as the system to run programs from.

The image's files are a lower layer that nobody changes. What tenants change goes to a layer in memory that ends with
the sandbox. Everything that the plan shows is mounted on top, as over the host's system. The image may be hostile: the
amount that is read from it here is bounded, and the guest follows none of its links.
"""

from __future__ import annotations

import os

from sandbox.config.rooted import inside, read_inside
from sandbox.guards.git_person import settings_for
from sandbox.layout.etc import HOSTS, NSSWITCH, RESOLVER
from sandbox.layout.system import System
from sandbox.plan import HOSTNAME
from sandbox.plan.plan import ImageRoot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Protocol

    from sandbox.plan.plan import Plan
    from sandbox.policy.environment import EnvFilter

    class Image(Protocol):
        """The part of `images.image.Image` that is used here."""

        @property
        def root(self) -> str: ...
        @property
        def environment(self) -> Mapping[str, str]: ...
        @property
        def user(self) -> str: ...


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Variables of the host that say how to talk to the person, and nothing about where things are.
OF_THE_PERSON = ("LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "TZ", "CI")
MOST = 1 << 20  # bytes that are read of a file of the image
NOBODY = 65534


class ImageSystem(System):
    """An image's files at `/`. `sealed`: tenants cannot change them, not even in the layer."""

    def __init__(self, image: Image, *, sealed: bool) -> None:
        self.image = image
        self.sealed = sealed

    def show(self, plan: Plan, home: str) -> None:
        plan.image = ImageRoot(self.image.root, plan.scratch_size)
        plan.sealed = self.sealed
        plan.links = []  # the image has its own /var/tmp and /var/run
        if not self.sealed:
            # These stay in the layer, with what the image has there.
            plan.scratch = [one for one in plan.scratch if one[0] not in ("/run", home) or not self._has(one[0])]
        self._etc(plan, home)

    def installed(self, programs: Sequence[str], home: str, project: str) -> list[str]:
        return []

    def programs(self, home: str, project: str) -> list[str]:
        return []

    def writable(self) -> list[str]:
        return [] if self.sealed else ["/"]

    def tenant(self, asked: str) -> tuple[str, int, int] | None:
        if asked != "user" or not self.image.user:
            return None
        return self._user(self.image.user)

    def environment(self, variables: EnvFilter, given: Mapping[str, str]) -> dict[str, str]:
        named = variables.named(given)
        kept = {
            name: value
            for name, value in variables.filter(given).items()
            if name in OF_THE_PERSON or name.startswith("LC_") or name in named
        }
        return {"PATH": PATH, **self.image.environment, **kept}

    def path(self, environment: Mapping[str, str], visible: Sequence[str]) -> str:
        return environment.get("PATH") or PATH

    def _has(self, path: str) -> bool:
        return os.path.isdir(self.image.root + path) and not os.path.islink(self.image.root + path)

    def _lines(self, path: str) -> list[list[str]]:
        text = (read_inside(self.image.root, path, MOST) or b"").decode("utf-8", "replace")
        return [fields for line in text.splitlines() if len(fields := line.split(":")) >= 4 and fields[0]]

    def _user(self, said: str) -> tuple[str, int, int]:
        """Resolves an image's `User`: a name or number, perhaps with a group. A number need not be in its files."""
        user, _, group = said.partition(":")
        known = next((one for one in self._lines("/etc/passwd") if user in (one[0], one[2])), None)
        uid = _number(known[2] if known else user)
        gid = _number(known[3] if known else "0")
        if group:
            groups = self._lines("/etc/group")
            gid = _number(next((one[2] for one in groups if one[0] == group), group))
        return (known[0] if known else "user"), uid, gid

    def _etc(self, plan: Plan, home: str) -> None:
        """Adds the image's users, the tenant among them, and our own settings for finding names."""
        shell = next((one for one in ("/bin/bash", "/bin/sh") if inside(self.image.root, one)), "/bin/sh")
        users = {one[0]: ":".join(one) for one in self._lines("/etc/passwd") if len(one) == 7}
        users.setdefault("root", "root:x:0:0:root:/root:/bin/sh")
        users[plan.user] = f"{plan.user}:x:{plan.uid}:{plan.gid}:{plan.user}:{home}:{shell}"
        # Of several lines with the same number, the first gives its name.
        ordered = [users.pop(plan.user), *users.values()]
        groups = {one[0]: ":".join(one) for one in self._lines("/etc/group") if len(one) == 4}
        groups.setdefault("root", "root:x:0:")
        if not any(one.split(":")[2] == str(plan.gid) for one in groups.values()):
            groups[plan.user] = f"{plan.user}:x:{plan.gid}:"
        plan.files += [
            ("/etc/passwd", 0o644, _text(ordered)),
            ("/etc/group", 0o644, _text(groups.values())),
            ("/etc/nsswitch.conf", 0o644, NSSWITCH),
            ("/etc/hosts", 0o644, HOSTS),
            ("/etc/hostname", 0o644, HOSTNAME.encode() + b"\n"),
            ("/etc/resolv.conf", 0o644, f"nameserver {RESOLVER}\n".encode()),
            ("/etc/gitconfig", 0o644, settings_for(plan.directory)),
        ]


def _number(text: str) -> int:
    """A user's or group's number; nobody's number for anything that is not a number or cannot be mapped."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else NOBODY


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
