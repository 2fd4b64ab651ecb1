"""Fixtures of the tests of desktops."""

from tests.desktop.desks import sandbox

__all__ = ["sandbox"]
