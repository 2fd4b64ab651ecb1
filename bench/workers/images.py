"""Sandboxes with and without an image, measured by time and by processor time."""

from __future__ import annotations

import resource
from collections.abc import Callable
from functools import partial

from bench.harness import serve
from sandbox import Sandbox


def first(image: str) -> Callable[[], None]:
    sandbox = Sandbox({"image": image})
    if sandbox.exec(["/usr/bin/true"]).exit_code:
        raise RuntimeError("true failed")
    return sandbox.close


def processor_time(image: str) -> float:
    """Milliseconds of ours and of all that has ended, with the sandbox's own end."""

    def used() -> float:
        both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return 1000 * sum(one.ru_utime + one.ru_stime for one in both)

    before = used()
    first(image)()
    return used() - before


def main() -> None:
    images = {"host": "host", "image": "minimal"}
    serve(
        {name: partial(first, image) for name, image in images.items()},
        {f"{name}-cpu": partial(processor_time, image) for name, image in images.items()},
    )


if __name__ == "__main__":
    main()
