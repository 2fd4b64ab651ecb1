"""The engine's images. Every container starts from an empty image, because the guest builds what tenants see. An image
that a configuration names is copied into our store, so that it is the same for every engine."""

from __future__ import annotations

import fcntl
import os
import tempfile

from sandbox.config.home import home
from sandbox.engines.container.cli import APPLE, CommandFailed
from sandbox.errors import EngineUnavailable, ImageError, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandbox.engines.container.cli import Cli

EMPTY = "localhost/sandbox-empty:1"
_NO_FILES = bytes(1024)  # a tar archive's end
_MOVE = 1800.0  # seconds for pulling or saving an image


def empty_image(cli: Cli) -> str:
    """An image without files, created if the engine does not have it. Raises EngineUnavailable."""
    if _inspect(cli, EMPTY) is not None:
        return EMPTY
    os.makedirs(home(), 0o700, exist_ok=True)
    with open(os.path.join(home(), ".empty-image"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes would each make one, and the first would lose its name
        if _inspect(cli, EMPTY) is None:
            _import_nothing(cli)
    return EMPTY


def _import_nothing(cli: Cli) -> None:
    if cli.name == APPLE:
        return _load_nothing(cli)
    with tempfile.TemporaryFile() as archive:
        archive.write(_NO_FILES)
        archive.seek(0)
        try:
            cli.run("import", "-", EMPTY, stdin=archive.fileno())
        except CommandFailed as problem:
            raise EngineUnavailable("{name} cannot make an image: {said}", name=cli.name, said=problem.said) from None


def _load_nothing(cli: Cli) -> None:
    """Apple's command reads images only as OCI archives."""
    from sandbox.images.export import export
    from sandbox.images.oci import this_architecture

    with tempfile.TemporaryDirectory() as place:
        archive = os.path.join(place, "empty.tar")
        os.mkdir(os.path.join(place, "root"))
        export(os.path.join(place, "root"), {}, archive, name=EMPTY, architecture=this_architecture())
        try:
            cli.run("image", "load", "--input", archive)
        except CommandFailed as problem:
            raise EngineUnavailable("{name} cannot make an image: {said}", name=cli.name, said=problem.said) from None


def bring(cli: Cli, asked: str) -> None:
    """Copies the engine's image of that name into our store; the engine pulls it first if necessary. Does nothing for
    an image that the store already has, or that neither the engine nor its registries know. Raises ImageError."""
    from sandbox.errors import NotFound
    from sandbox.images import manage, store
    from sandbox.images.importing import import_path
    from sandbox.images.names import VARIANTS, plain_name, reference

    if asked in VARIANTS or store.means_host(asked):
        return
    try:
        return store.find(asked).release()
    except NotFound:
        pass
    if reference(asked) is None:
        plain_name(asked)  # raises for an invalid name, so that the command cannot take it for an option
    if _inspect(cli, asked) is None and not _pulled(cli, asked):
        return
    with manage.making() as place:
        archive = os.path.join(place, "saved.tar")
        try:
            cli.run("image", "save", "--output", archive, asked, patience=_MOVE)
        except CommandFailed as problem:
            raise ImageError(
                "{name} cannot save {image}: {said}", name=cli.name, image=asked, said=problem.said
            ) from None
        manage.name(import_path(archive), asked)


def _pulled(cli: Cli, asked: str) -> bool:
    try:
        quiet = ("--progress", "none") if cli.name == APPLE else ("--quiet",)
        cli.run("image", "pull", *quiet, asked, patience=_MOVE)
    except CommandFailed:
        return False
    return True


def _inspect(cli: Cli, reference: str) -> dict[str, Any] | None:
    try:
        told = cli.json("image", "inspect", reference)
    except CommandFailed as problem:
        if any(words in problem.said.lower() for words in ("no such image", "not known", "image not found")):
            return None
        raise EngineUnavailable("{name}: {said}", name=cli.name, said=problem.said) from None
    if not isinstance(told, list) or len(told) != 1 or not isinstance(told[0], dict) or not _named(told[0]):
        raise EngineUnavailable("{name}: {said}", name=cli.name, said=Message("its answer does not describe an image"))
    return told[0]


def _named(told: dict[str, Any]) -> bool:
    return any(told.get(key) for key in ("Id", "id", "name"))
