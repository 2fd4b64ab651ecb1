"""What engines may declare."""

from __future__ import annotations

import pytest

from sandbox.engines.base import Capabilities


def test_an_engine_has_a_root_of_its_own_only_behind_walls() -> None:
    # Else the guest would furnish the host's root: as root it then writes /etc/passwd and mounts over /root and /tmp.
    with pytest.raises(ValueError, match="without walls"):
        Capabilities(walls=False, own_root=True)
