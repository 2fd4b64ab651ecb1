"""The sandbox's own `/etc`: users and the resolver are written here; other files come from the host."""

from __future__ import annotations

import os
import pwd
import stat

from sandbox.guards.git_person import ignored, settings_for
from sandbox.plan import HOSTNAME
from sandbox.plan.mount_operations import Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.plan.plan import Plan

RESOLVER = "198.18.0.2"  # the gate answers there, as at every address that is not a loopback address

# Files of /etc that configure programs and reveal nothing about this machine or its people. Programs in /usr need them:
# Java's `conf` is a link into /etc, and so are the settings of R and LibreOffice.
ETC = (
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "localtime",
    "timezone",
    "services",
    "protocols",
    "mime.types",
    "fonts",
    "os-release",
    "lsb-release",
    "debian_version",
    "groff",
    "inputrc",
    "libreoffice",
    "locale.alias",
    "magic",
    "maven/m2.conf",
    "mono",
    "perl",
    "R",
    "sgml",
    "terminfo",
    "texmf",
    "X11/rgb.txt",
    "xml",
)
ETC_VERSIONED = ("java-", "python3", "ImageMagick-")
ETC_PHP = ("cli", "mods-available")  # of each version; not those of the web server
ORDINARY = 1000  # the first person's uid on most systems
NSSWITCH = b"passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
HOSTS = b"127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"


def etc(plan: Plan, home: str) -> None:
    """Adds it to the plan."""
    for name in _shown():
        path = f"/etc/{name}"
        try:
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
        except OSError:
            continue
        source = os.path.realpath(path) if is_link else path
        if not is_link or os.path.exists(source):
            plan.show(source, path, False)
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    passwd = [f"{plan.user}:x:{plan.uid}:{plan.gid}:{plan.user}:{home}:{shell}"]
    group = [f"{plan.user}:x:{plan.gid}:"]
    if plan.uid != 0:
        passwd.append("root:x:0:0:root:/:/usr/sbin/nologin")
    if plan.gid != 0:
        group.append("root:x:0:")
    passwd.append("nobody:x:65534:65534:nobody:/:/usr/sbin/nologin")
    group.append("nogroup:x:65534:")
    plan.files += [
        ("/etc/passwd", 0o644, _lines(passwd)),
        ("/etc/group", 0o644, _lines(group)),
        ("/etc/nsswitch.conf", 0o644, NSSWITCH),
        ("/etc/hosts", 0o644, HOSTS),
        ("/etc/hostname", 0o644, HOSTNAME.encode() + b"\n"),
        ("/etc/resolv.conf", 0o644, f"nameserver {RESOLVER}\n".encode()),
    ]
    # In the system's file, so that a repository's own settings override them, as on the host.
    plan.files.append(("/etc/gitconfig", 0o644, settings_for(plan.directory) + _owners(plan)))


def _owners(plan: Plan) -> bytes:
    """Where files have another owner inside, git must not take every one for changed: it would read them all, inside
    and then outside again. By size and time (in seconds) it knows a change; what was changed in the second of its
    index's last change, it reads."""
    return b"" if plan.uid == os.getuid() else b"[core]\n\tcheckStat = minimal\n"


def ignore(plan: Plan, names: list[str]) -> None:
    """Makes git inside ignore these directories at the top of the project's repository.

    They are empty and cannot be removed: `git stash -u` and `git clean -d`, which remove empty directories, would fail.
    """
    repository = f"{plan.directory}/.git"
    if not names or not os.path.isdir(repository):
        return
    # As a pattern, and then quoted. Only for this repository: others in the project may track such directories.
    exactly = "".join(f"\\{sign}" if sign in "\\*?[" else sign for sign in repository)
    quoted = exactly.replace("\\", "\\\\").replace('"', '\\"')
    if "\n" in quoted:
        return
    only_there = os.fsencode(f'[includeIf "gitdir:{quoted}"]\n\tpath = /etc/gitconfig.project\n')
    plan.files = [
        (name, mode, content + only_there) if name == "/etc/gitconfig" else (name, mode, content)
        for name, mode, content in plan.files
    ]
    plan.files.append(("/etc/gitconfig.project", 0o644, b"[core]\n\texcludesFile = /etc/gitignore\n"))
    plan.files.append(("/etc/gitignore", 0o644, _lines([f"/{name}/" for name in names])))


def hold(plan: Plan, files: list[str]) -> None:
    """Shows empty files of the host to tenants as devices that nobody can open, and makes git inside ignore them.

    Those in the home stay empty files, and are frozen: git fails if it cannot read its settings there."""
    home = os.path.realpath(os.path.expanduser("~"))
    shown = (path for path in files if os.path.dirname(path) != home)
    plan.covers += (Bind(path, "/dev/null", read_only=True, optional=True) for path in shown)
    top = f"{plan.directory}/"
    names = [path.removeprefix(top) for path in files if path.startswith(top) and "\n" not in path]
    if names and os.path.lexists(f"{plan.directory}/.git"):
        exactly = ("".join(f"\\{sign}" if sign in "\\*?[ " else sign for sign in name) for name in names)
        plan.files.append(
            (f"{plan.own_files}/gitignore", 0o644, ignored(plan.directory) + _lines([f"/{name}" for name in exactly]))
        )
        add_git_setting(plan.environment, "core.excludesFile", f"{plan.own_files}/gitignore")


def add_git_setting(environment: dict[str, str], key: str, value: str) -> None:
    """Adds a setting for git to those in the environment."""
    said = environment.get("GIT_CONFIG_COUNT", "0")
    count = int(said) if said.isdecimal() else 0
    environment |= {
        "GIT_CONFIG_COUNT": str(count + 1),
        f"GIT_CONFIG_KEY_{count}": key,
        f"GIT_CONFIG_VALUE_{count}": value,
    }


def _shown() -> list[str]:
    versioned = [name for name in os.listdir("/etc") if name.startswith(ETC_VERSIONED)]
    php = os.listdir("/etc/php") if os.path.isdir("/etc/php") else []
    return [*ETC, *versioned, *(f"php/{version}/{part}" for version in php for part in ETC_PHP)]


def _lines(entries: list[str]) -> bytes:
    return os.fsencode("".join(f"{entry}\n" for entry in entries))


def tenant(asked: str) -> tuple[str, int, int]:
    """Who tenants are inside: name, user and group. On the host their files always belong to the owner.

    Root's tenants are not root: tar, cp and rsync fail when uid 0 may not change a file's owner. As an ordinary user
    they work.
    """
    if asked == "root":
        return "root", 0, 0
    uid, gid = os.getuid(), os.getgid()
    if uid == 0 and asked != "owner":
        return "user", ORDINARY, ORDINARY
    try:
        return pwd.getpwuid(uid).pw_name, uid, gid
    except KeyError:
        return "user", uid, gid
