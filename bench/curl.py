"""curl as everybody's client: the same command line directly, in our sandbox and in a peer's, telling its own times."""

from __future__ import annotations

SMALL = 500
NEW = 200


def words(url: str, *options: str) -> list[str]:
    """Fetches the URL (with `[1-500]` in it: so often, over one connection), prints a line for each fetch."""
    return ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{time_total}\\n", *options, url]


def milliseconds(output: str, count: int) -> float:
    """The time of all fetches together. Raises RuntimeError when one of them went wrong."""
    lines = [line.split() for line in output.splitlines()]
    if len(lines) != count or any(line[0] != "200" for line in lines):
        raise RuntimeError(f"{len(lines)} answers instead of {count}: {output.strip()[-80:]}")
    return sum(float(line[1]) for line in lines) * 1000


def fetches(base: str) -> dict[str, tuple[list[str], int]]:
    """What is measured by name: the command line, and how many answers it must get."""
    return {
        "big": (words(f"{base}/big"), 1),
        "small": (words(f"{base}/s?[1-{SMALL}]"), SMALL),
        "new": (words(f"{base}/s?[1-{NEW}]", "-H", "Connection: close"), NEW),
    }


def secure_fetches(base: str) -> dict[str, tuple[list[str], int]]:
    """The same over TLS. Whom curl trusts is not measured."""
    return {"https": (words(f"{base}/s?[1-{SMALL}]", "-k", "--http1.1"), SMALL)}
