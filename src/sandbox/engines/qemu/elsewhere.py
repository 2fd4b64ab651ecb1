"""QEMU in a room with an image at `/`: its program and libraries are the host's, in a directory that only it can read.

The command line names the loader and the library directories, since the image has its own loader at the usual path.
"""

from __future__ import annotations

import os
import re
import subprocess

from sandbox.errors import WallError
from sandbox.layout.system import SYSTEM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.plan.plan import Plan

PLACE = "/.machine-system"  # see also guest/share_names.c and guest/machine_launch.c
DATA = "/usr/share/qemu"  # the machine's firmware
_LIBRARY = re.compile(r"=> (/\S+) \(")
_LOADER = re.compile(r"^\s*(/\S+) \(", re.MULTILINE)


def show(plan: Plan) -> None:
    """Adds the host's system directories to the plan, under PLACE."""
    for path in SYSTEM:
        if os.path.isdir(path) and not os.path.islink(path):
            plan.show(path, PLACE + path, False)


def moved(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command line that starts the same program from there, and its variables. Raises WallError."""
    program = words[0]
    told = subprocess.run(["/usr/bin/ldd", program], capture_output=True, text=True, check=False).stdout
    loader = _LOADER.search(told)
    if loader is None:
        raise WallError("{program} has no loader, so it cannot run beside an image", program=program)
    places = dict.fromkeys(os.path.dirname(os.path.realpath(path)) for path in _LIBRARY.findall(told))
    modules = [place + "/qemu" for place in places if os.path.isdir(place + "/qemu")]
    search = ":".join(PLACE + place for place in places)
    start = [PLACE + os.path.realpath(loader[1]), "--library-path", search, PLACE + os.path.realpath(program)]
    variables = {"QEMU_MODULE_DIR": PLACE + modules[0]} if modules else {}
    return [*start, *words[1:], "-L", PLACE + DATA], variables
