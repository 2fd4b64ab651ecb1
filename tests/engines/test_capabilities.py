"""What engines may declare."""

from __future__ import annotations

import pytest

from sandbox.engines.base import Capabilities


def test_an_engine_has_a_root_of_its_own_only_when_it_says_so_and_has_walls() -> None:
    # Else the guest would furnish the host's root: as root it then writes /etc/passwd and mounts over /root and /tmp.
    assert not Capabilities().own_root and not Capabilities(walls=False).own_root
    with pytest.raises(ValueError, match="without walls"):
        Capabilities(walls=False, own_root=True)
