"""What one step costs: measured on real servers (`python -m bench.scale measure`), kept in costs.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("costs.json")


@dataclass(frozen=True)
class Step:
    """One kind of request. Seconds: of the server's interpreter (one at a time in a server), of other processes (on any
    core), of the one who asks, and of waiting for the kernel without a core."""

    server: float
    others: float
    client: float
    idle: float

    @property
    def cpu(self) -> float:
        return self.server + self.others


@dataclass(frozen=True)
class Costs:
    start: Step
    exec: Step
    close: Step
    ask: Step  # a request that does nothing: a round trip to the server
    memory_mb: float  # of one idle sandbox
    server_mb: float  # of a server without any
    kernel: float  # of `close.others`: what no process is charged for
    machine: str  # what it was measured on, and how

    def save(self, path: Path = FILE) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path = FILE) -> Costs:
        said = json.loads(path.read_text(encoding="utf-8"))
        for name in ("start", "exec", "close", "ask"):
            said[name] = Step(**said[name])
        return cls(**said)
