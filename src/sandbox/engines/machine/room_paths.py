"""A machine's paths in its room (see also guest/machine_launch.c, guest/share_names.c), and its default size."""

from __future__ import annotations

DIRECTORY = "/.machine"  # the template
RUN = "/.machine-run"  # Firecracker's sockets
MEMORY_MB = 1024  # of a machine without a memory limit
OWN_MB = 256  # needed in addition by the program that runs it
ADDRESSES_MB = 2560  # addresses of that program without the machine's memory: QEMU reserves 1 GiB for translated code
