"""The engine's images. Every container starts from an empty image, because the guest builds what tenants see. An image
that a configuration names is copied into our store, so that it is the same for every engine."""

from __future__ import annotations

import fcntl
import os
import tempfile

from sandbox.config.home import home
from sandbox.engines.container.cli import CommandFailed
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
    with tempfile.TemporaryFile() as archive:
        archive.write(_NO_FILES)
        archive.seek(0)
        try:
            cli.run("import", "-", EMPTY, stdin=archive.fileno())
        except CommandFailed as problem:
            raise EngineUnavailable("{name} cannot make an image: {said}", name=cli.name, said=problem.said) from None


def bring(cli: Cli, asked: str) -> None:
    """Copies the engine's image of that name into our store; the engine pulls it first if necessary. Does nothing for
    an image that the store already has, or that neither the engine nor its registries know. Raises ImageError."""
    from sandbox.errors import NotFound
    from sandbox.images import keeping, store
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
    with keeping.making() as place:
        archive = os.path.join(place, "saved.tar")
        try:
            cli.run("save", "--output", archive, asked, patience=_MOVE)
        except CommandFailed as problem:
            raise ImageError(
                "{name} cannot save {image}: {said}", name=cli.name, image=asked, said=problem.said
            ) from None
        keeping.name(import_path(archive), asked)


def _pulled(cli: Cli, asked: str) -> bool:
    try:
        cli.run("pull", "--quiet", asked, patience=_MOVE)
    except CommandFailed:
        return False
    return True


def _inspect(cli: Cli, reference: str) -> dict[str, Any] | None:
    try:
        told = cli.json("image", "inspect", reference)
    except CommandFailed as problem:
        if "no such image" in problem.said.lower() or "not known" in problem.said.lower():
            return None
        raise EngineUnavailable("{name}: {said}", name=cli.name, said=problem.said) from None
    if not isinstance(told, list) or len(told) != 1 or not isinstance(told[0], dict) or not told[0].get("Id"):
        raise EngineUnavailable("{name}: {said}", name=cli.name, said=Message("its answer about an image is not one"))
    return told[0]
