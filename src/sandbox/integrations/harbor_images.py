"""harbor: brings a task's image into our store. A Dockerfile is built with a builder installed on this machine."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from sandbox.config.model import Config
from sandbox.errors import ImageError, NotFound
from sandbox.images import manage, store
from sandbox.images.importing import import_path
from sandbox.images.obtain import obtain
from sandbox.network.secrets.programs import environment, safe_path  # not what a tenant left on the owner's PATH

#: How each builder builds `{tag}` from `{context}`, and how it writes it to `{file}`.
BUILDERS = {
    "buildah": (["build", "--tag", "{tag}", "{context}"], ["push", "{tag}", "oci-archive:{file}"]),
    "podman": (["build", "--tag", "{tag}", "{context}"], ["save", "--format", "oci-archive", "-o", "{file}", "{tag}"]),
    "docker": (["build", "--tag", "{tag}", "{context}"], ["save", "-o", "{file}", "{tag}"]),
}


def bring(named: str | None, context: Path, own: str, force: bool) -> tuple[str, str]:
    """Returns the name of a task's image in our store, and its working directory ("" when it names none).

    Raises ImageError when it is not available, ConfigError when its name is malformed.
    """
    if (context / "Dockerfile").is_file() and (force or named is None):
        asked = own
        if force or not _is_here(own):
            manage.name(_built(context), own)
    else:
        assert named is not None
        asked = named if _is_here(named) else _whole(named)
    image = obtain(Config.read({"image": asked}))
    if image is None:
        return "host", ""
    try:
        return asked, image.workdir if image.workdir.startswith("/") else ""
    finally:
        image.release()


def _is_here(name: str) -> bool:
    try:
        found = store.find(name)
    except (NotFound, ImageError):
        return False
    if found is not None:
        found.release()
    return True


def _whole(named: str) -> str:
    """The full reference, as Docker reads it: without a registry it means Docker Hub."""
    first, slash, _ = named.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return named
    return f"docker.io/{named}" if slash else f"docker.io/library/{named}"


def _built(context: Path) -> str:
    """Builds a Dockerfile and imports the result. Returns the image's digest. Raises ImageError."""
    builder = next((one for one in BUILDERS if shutil.which(one, path=safe_path())), None)
    if builder is None:
        raise ImageError("a Dockerfile needs a builder: install buildah, podman or docker")
    with tempfile.TemporaryDirectory(prefix="sandbox-build-") as directory:
        words = {
            "tag": f"localhost/sandbox-build-{secrets.token_hex(8)}",
            "file": f"{directory}/image.tar",
            "context": str(context),
        }
        try:
            for step in BUILDERS[builder]:
                _run([builder, *(word.format(**words) for word in step)])
        finally:
            subprocess.run([builder, "rmi", words["tag"]], env=environment(), capture_output=True, check=False)
        return import_path(words["file"])


def _run(words: list[str]) -> None:
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise ImageError("{builder} failed: {why}", builder=words[0], why=done.stderr.strip()[-2000:])
