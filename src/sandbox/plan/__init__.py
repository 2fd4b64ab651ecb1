"""A sandbox as it is to be built, in terms that every engine understands."""

from __future__ import annotations

HOSTNAME = "sandbox"  # what tenants see as the machine's name
