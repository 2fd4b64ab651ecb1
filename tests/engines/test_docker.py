"""Docker is an engine like the others."""

from __future__ import annotations

import pytest

from tests.engines.conformance import Conformance

pytestmark = [pytest.mark.containers, pytest.mark.root, pytest.mark.usefixtures("docker")]


class TestDocker(Conformance):
    engine = "docker"
