"""What a configuration asks to have at `/`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config


def asked_image(config: Config) -> str | None:
    """The image, with names of the configuration's own resolved; None is the host's system."""
    asked = config.image
    if asked is not None and asked in config.image_names:
        asked = config.image_names[asked]
    return None if asked in (None, "host") else asked
