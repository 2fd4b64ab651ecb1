"""Building a variant from Debian's packages, as apt is set up on this machine, with mmdebstrap.

The same packages give the same archive: mmdebstrap sorts it and replaces every later time with SOURCE_DATE_EPOCH, what
differs from run to run is removed, and gzip writes neither a name nor a time. It does not need root: without it,
mmdebstrap uses a user namespace with the user's subordinate ids (package `uidmap`). apt then drops privileges
differently, and its directories have other owners. So no owners are written; whoever unpacks an image owns all of it.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import BinaryIO

from sandbox.errors import ConfigError, ImageError
from sandbox.images import digests, manage
from sandbox.images.importing import import_root
from sandbox.images.manifest import SIGNATURE, Artifact, sign, written
from sandbox.images.names import VARIANTS
from sandbox.images.oci import this_architecture
from sandbox.images.prefetch import KERNEL, MACHINE, ROOTFS

# Each variant also has the packages of those before it.
PACKAGES = {
    "minimal": ("bash", "ca-certificates", "curl", "python3"),
    "standard": (
        *("build-essential", "git", "less", "nodejs", "npm", "openssh-client", "procps", "python3-pip"),
        *("python3-venv", "wget"),
    ),
    "full": ("golang-go", "python3-numpy", "python3-pandas", "ruby"),
}
# Nobody reads manuals or translations in a sandbox; licences are kept.
LEFT_OUT = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)
# These depend on the run and not on the packages: times, the machine's id, and caches.
CHANGING = (
    "/var/log/apt",
    "/var/log/dpkg.log",
    "/var/log/alternatives.log",
    "/var/log/bootstrap.log",
    "/var/cache/ldconfig/aux-cache",
    "/var/cache/apt",
    "/var/lib/apt/lists",
    "/etc/machine-id",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
)
EPOCH = 1_700_000_000  # if SOURCE_DATE_EPOCH is not set
SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d")
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # the owner's may have directories that tenants write to
BINFMT = "/proc/sys/fs/binfmt_misc"  # which programs the kernel runs with an emulator


def build(
    variant: str,
    *,
    architecture: str | None = None,
    output: str | None = None,
    key: str | None = None,
    kernel: bool = False,
    machine: Sequence[str] = (),
    version: str = "1.0.0",
) -> str:
    """Builds a variant, names it, and writes archive and manifest to the directory `output` if given. Returns the
    image's digest. `machine`: files of a kernel to publish, for virtual machines on other hosts. Raises ConfigError and
    ImageError."""
    if variant not in VARIANTS:
        raise ConfigError("{name!r} is not one of {names}", name=variant, names=", ".join(VARIANTS), path="image")
    if output is None and (key is not None or kernel):
        raise ImageError("a manifest is written to a directory: name it with `--output`")
    wanted = architecture or this_architecture()
    if kernel and wanted != this_architecture():
        raise ImageError("this machine's kernel is for {architecture}", architecture=this_architecture())
    _check_programs_run(wanted)
    with tempfile.TemporaryDirectory(prefix="sandbox-build-") as work:
        archive = f"{work}/rootfs.tar.gz"
        with _without_owners(_bootstrap(variant, wanted, work), work) as plain:
            _pack(plain, archive)
        digest = import_root(archive, {}, architecture=wanted, source="sandbox images build")
        manage.name(digest, variant if wanted == this_architecture() else f"{variant}-{wanted}")
        if output is not None:
            _publish(archive, variant, wanted, output, key, kernel, machine, version)
    return digest


def _check_programs_run(architecture: str) -> None:
    """Packages run their own programs while they are installed. Raises ImageError if this machine cannot run programs
    for that architecture."""
    if architecture == this_architecture():
        return
    emulator = {"arm64": "qemu-aarch64", "amd64": "qemu-x86_64"}.get(architecture)
    if emulator is None:
        raise ImageError("an image is built for amd64 or arm64, not for {architecture}", architecture=architecture)
    if not os.path.exists(f"{BINFMT}/{emulator}"):
        raise ImageError(
            "this machine runs no programs for {architecture}: `apt install qemu-user-static binfmt-support` as root, "
            "or build the image on such a machine",
            architecture=architecture,
        )


def packages(variant: str) -> list[str]:
    """The packages that a variant asks for; apt adds what they need."""
    return [one for name in VARIANTS[: VARIANTS.index(variant) + 1] for one in PACKAGES[name]]


def _bootstrap(variant: str, architecture: str, work: str) -> str:
    """A tar of the variant's root."""
    program = shutil.which("mmdebstrap", path=SYSTEM_PATH)
    if program is None:
        raise ImageError("mmdebstrap is not installed: `apt install mmdebstrap uidmap`")
    tar = f"{work}/rootfs.tar"
    command = [
        program,
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=minbase",
        f"--architectures={architecture}",
        f"--include={','.join(packages(variant))}",
        *(f"--dpkgopt={one}" for one in LEFT_OUT),
        *("--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Languages none"),
        # Bytecode is removed: its order depends on which processor finishes first.
        *('--customize-hook=find "$1/usr" -name __pycache__ -prune -exec rm -rf {} +',),
        *(f'--customize-hook=rm -rf "$1{path}"' for path in CHANGING),
        *('--customize-hook=mkdir -p "$1/etc/apt/sources.list.d" "$1/var/cache/apt" "$1/var/lib/apt/lists"',),
        _suite(),
        tar,
        *_sources(),
    ]
    epoch = os.environ.get("SOURCE_DATE_EPOCH", str(EPOCH))
    environment = {**os.environ, "PATH": SYSTEM_PATH, "SOURCE_DATE_EPOCH": epoch, "TMPDIR": work}
    if os.geteuid() != 0:
        os.chmod(work, 0o755)  # another user of the user namespace works there
        environment["TMPDIR"] = "/tmp"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        said = "; ".join(line for line in done.stderr.splitlines() if line.startswith("E:")) or done.stderr[-500:]
        raise ImageError("mmdebstrap could not build the image: {said}", said=said)
    return tar


def _suite() -> str:
    """The suite that this machine's own apt follows."""
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            told = dict(line.strip().partition("=")[::2] for line in file)
    except OSError:
        told = {}
    suite = told.get("VERSION_CODENAME", "").strip('"')
    if not suite:
        raise ImageError("images are built from Debian's packages, and this machine has none")
    return suite


def _sources() -> list[str]:
    """The files that list where this machine's apt gets packages."""
    single, several = SOURCES
    found = [single] if os.path.exists(single) and os.path.getsize(single) else []
    if os.path.isdir(several):
        listed = sorted(one for one in os.listdir(several) if one.endswith((".list", ".sources")))
        found += (f"{several}/{one}" for one in listed)
    if not found:
        raise ImageError("images are built from Debian's packages, and this machine has none")
    return found


def _pack(source: BinaryIO, target: str) -> None:
    with (
        open(target, "wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="", compresslevel=6) as zipped,
    ):
        shutil.copyfileobj(source, zipped, 1 << 20)


def _without_owners(tar: str, work: str) -> BinaryIO:
    """The same archive, in an unnamed file, with everything owned by root."""
    import tarfile

    made = tempfile.TemporaryFile(dir=work)  # noqa: SIM115 - the caller's
    with tarfile.open(tar) as source, tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as target:
        for member in source:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            target.addfile(member, source.extractfile(member) if member.isreg() else None)
            source.members = []  # type: ignore[attr-defined]  # it would keep them all
    os.unlink(tar)
    made.seek(0)
    return made


def _publish(
    archive: str,
    variant: str,
    architecture: str,
    output: str,
    key: str | None,
    kernel: bool,
    machine: Sequence[str],
    version: str,
) -> None:
    """Writes a directory that `image_source` can point to. URLs are relative, so it can be served from anywhere."""
    os.makedirs(output, exist_ok=True)
    name = ROOTFS.format(variant=variant, arch=architecture)
    files = {name: (archive, f"{name}-{version}.tar.gz")}
    with tempfile.TemporaryDirectory(dir=output) as work:
        if kernel:
            files[KERNEL.format(arch=architecture)] = (_kernel(work), f"kernel-{architecture}-{version}.gz")
        if machine:
            name = MACHINE.format(arch=architecture)
            files[name] = (_machine(machine, work), f"{name}-{version}.tar.gz")
        artifacts = {
            one: Artifact(target, digests.of_file(path), os.path.getsize(path)) for one, (path, target) in files.items()
        }
        for path, target in files.values():
            shutil.copyfile(path, f"{work}/copy")
            os.rename(f"{work}/copy", f"{output}/{target}")
        data = written(version, artifacts | _others(output, version, artifacts))
        if key is not None:
            with open(os.path.expanduser(key), "rb") as secret:
                _write(f"{output}/manifest.json{SIGNATURE}", sign(data, secret.read()), work)
        _write(f"{output}/manifest.json", data, work)


def _others(output: str, version: str, new: dict[str, Artifact]) -> dict[str, Artifact]:
    """The other artifacts of an existing manifest of the same version: variants are built one after the other."""
    from sandbox.images.manifest import Manifest

    try:
        with open(f"{output}/manifest.json", "rb") as file:
            there = Manifest.read(file.read(), "")
    except FileNotFoundError:
        return {}
    return {name: one for name, one in there.artifacts.items() if there.version == version and name not in new}


def _kernel(work: str) -> str:
    """The newest of this machine's kernels, compressed."""
    import glob
    import re

    found = [path for path in glob.glob("/boot/vmlinuz-*") if os.access(path, os.R_OK)]
    if not found:
        raise ImageError("this machine has no kernel in /boot: `apt install linux-image-amd64`")
    newest = max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path)])
    with open(newest, "rb") as image:
        _pack(image, f"{work}/kernel")
    return f"{work}/kernel"


def _machine(paths: Sequence[str], work: str) -> str:
    """An archive of these files at their own paths, owned by root, without times: the same for the same files."""
    import tarfile

    with tempfile.TemporaryFile(dir=work) as made:
        with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(paths):
                member = tarfile.TarInfo(path.lstrip("/"))
                member.size, member.mode = os.path.getsize(path), 0o644
                with open(path, "rb") as content:
                    tar.addfile(member, content)
        made.seek(0)
        _pack(made, f"{work}/machine")
    return f"{work}/machine"


def _write(path: str, data: bytes, work: str) -> None:
    with open(f"{work}/new", "wb") as file:
        file.write(data)
    os.rename(f"{work}/new", path)
