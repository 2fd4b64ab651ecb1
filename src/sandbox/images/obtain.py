"""The image that a configuration asks for, fetched if it is not on this machine."""

from __future__ import annotations

import os

from sandbox.config.image_choice import asked_image
from sandbox.config.rooted import inside
from sandbox.errors import ConfigError, ImageError, NotFound, SandboxError
from sandbox.images.image import Image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config


def obtain(config: Config) -> Image | None:
    """The image, held until it is released, or None for the host's own system. An image from a registry, or a variant
    from `image_source`, is fetched if it is not on this machine. Raises ConfigError or ImageError."""
    asked = asked_image(config) or ""
    if asked.startswith(("/", "~", ".")):
        return _directory(asked)
    from sandbox.images import store

    if store.means_host(asked):
        return None
    try:
        return store.find(asked)
    except NotFound:
        _fetch(asked, config)
    return store.find(asked)


def command_of(config: Config, words: list[str]) -> tuple[list[str], str | None]:
    """What `sandbox run` runs in the image, and its working directory (None: the project). As with `docker run`, it is
    the image's entry point with `words` as arguments. Without `words`, the image's own arguments and working directory
    are used.

    Raises SandboxError when there is nothing to run, and what `obtain` raises."""
    image = obtain(config)
    if image is None:
        if not words:
            raise SandboxError("no command; try `sandbox run -- ls`")
        return words, None
    try:
        command = image.command(words)
        if not command:
            raise SandboxError("no command, and the image {name} names none; try `sandbox run -- ls`", name=image.name)
        there = image.workdir if not words and image.workdir.startswith("/") else ""
        return command, there if there and inside(image.root, there) else None
    finally:
        image.release()


def _fetch(asked: str, config: Config) -> None:
    from sandbox.images.names import VARIANTS, reference

    try:
        found = reference(asked)
    except ImageError as problem:
        raise ConfigError(problem.args[0], path="image") from None
    if found is not None:
        from sandbox.images.pull import pull

        pull(found, config)
    elif asked in VARIANTS and config.image_source is not None:
        from sandbox.images.prefetch import prefetch

        prefetch(asked, config)
    elif asked in VARIANTS:
        raise ConfigError(
            "the image {name} is not on this machine: `sandbox images build {name}` makes it, `sandbox prefetch"
            " --variant {name}` fetches it where `image_source` names a manifest, and `sandbox images name host {name}`"
            " takes this machine's own system instead",
            name=asked,
            path="image",
        )
    else:
        raise ConfigError(
            "there is no image {name} on this machine; `sandbox images list` lists the images, and"
            " `sandbox images import FILE --name {name}` imports one",
            name=asked,
            path="image",
        )


def _directory(asked: str) -> Image:
    root = os.path.realpath(os.path.expanduser(asked))
    if not os.path.isdir(root) or root == "/":
        raise ConfigError("{asked!r} is not a directory with a system in it", asked=asked, path="image")
    if root != os.path.abspath(os.path.expanduser(asked)):
        from sandbox.guards.planted_links import refuse_planted

        refuse_planted(asked, "image")
    if os.path.exists(f"{root}/oci-layout"):
        raise ConfigError(
            "{asked!r} is an OCI layout: `sandbox images import {asked} --name NAME` unpacks it",
            asked=asked,
            path="image",
        )
    return Image(asked, root)
