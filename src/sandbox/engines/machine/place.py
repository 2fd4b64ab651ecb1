"""Where things of a machine lie in its room (also guest/machine_launch.c, guest/share_names.c), and how large it is."""

from __future__ import annotations

DIRECTORY = "/.machine"  # the template
RUN = "/.machine-run"  # Firecracker's sockets
MEMORY_MB = 1024  # of a machine for which nothing was asked
OWN_MB = 256  # that the program which runs it needs besides
