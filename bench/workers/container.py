"""A sandbox with Docker, in which commands are measured."""

from __future__ import annotations

from bench.harness import serve
from sandbox import Sandbox


def main() -> None:
    with Sandbox({"engine": "docker"}) as sandbox:

        def run() -> None:
            if sandbox.exec(["true"]).exit_code:
                raise RuntimeError("true failed")

        serve({"exec": run}, {})


if __name__ == "__main__":
    main()
