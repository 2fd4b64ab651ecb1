"""`python -m tests.cluster.evaluate SAMPLES`: the example with inspect_ai, over three nodes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.three_nodes import patient, three_nodes

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "evaluate_on_cluster.py"


def main() -> int:
    patient()
    machines = three_nodes()
    start = time.monotonic()
    code = subprocess.run([sys.executable, str(EXAMPLE), machines.address, sys.argv[1]], check=False).returncode
    print(f"{time.monotonic() - start:.0f} s, load {os.getloadavg()[0]:.0f}")
    return code


if __name__ == "__main__":
    sys.exit(main())
