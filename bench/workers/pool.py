"""Sandboxes from a pool and built ones, measured side by side."""

from __future__ import annotations

import os
from collections.abc import Callable

from bench.harness import serve
from sandbox import Pool, Sandbox


def main() -> None:
    ready, late = Pool(size=4), Pool(size=4, late_project=True)
    project = os.getcwd()

    def filled(sandbox: Sandbox) -> Callable[[], None]:
        """What happens when the clock stands: the next repetition finds both pools full."""

        def give_back() -> None:
            sandbox.close()
            ready.fill(60)
            late.fill(60)

        return give_back

    def run(sandbox: Sandbox) -> Callable[[], None]:
        if sandbox.exec(["true"]).exit_code:
            raise RuntimeError("true failed")
        return filled(sandbox)

    ready.fill(60)
    late.fill(60)
    serve(
        {
            "built": lambda: run(Sandbox()),
            "hand-out": lambda: filled(ready.get()),
            "pool": lambda: run(ready.get()),
            "late project": lambda: run(late.get(project=project)),
        },
        {},
    )
    ready.close()
    late.close()


if __name__ == "__main__":
    main()
