"""The `sandbox` command, with the framed engine whatever is asked for."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import sandbox.sandbox
from sandbox.cli.main import main
from tests.engines.framed_engine import FramedEngine

vars(sandbox.sandbox)["choose"] = lambda config: FramedEngine()
main()
