"""Podman is an engine like the others: the machine's root's, and an ordinary user's."""

from __future__ import annotations

import pytest

from tests.engines.conformance import Conformance

pytestmark = [pytest.mark.containers, pytest.mark.usefixtures("podman")]


class TestPodman(Conformance):
    engine = "podman"
