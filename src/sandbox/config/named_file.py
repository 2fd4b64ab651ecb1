"""The file that a run was told to read (`--config`, `srt -s`), where tenants see it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config


def keep_from_tenants(config: Config, file: str, said: Config) -> None:
    """Adds rules to `config`: tenants cannot change `file`, because it decides what they may do in the next run, nor
    read it when what it says (`said`) holds a secret."""
    from glob import escape

    path, filesystem = os.path.realpath(file), config.filesystem
    if not os.path.isfile(path):
        return  # srt's default, which need not exist
    path = escape(path)
    filesystem.deny_write = [*filesystem.deny_write, path]
    if said.plain() != said.whole():
        filesystem.deny_read = [*filesystem.deny_read, path]
