"""Searches a text with a regular expression that somebody else wrote, in bounded time.

Python's matcher can take practically forever for thirty letters, and cannot be interrupted. So it runs in a process of
its own, which the kernel ends.
"""

from __future__ import annotations

import json
import subprocess
import sys

from sandbox.errors import ConfigError

SECONDS = 2  # of processor time
_PATIENCE = 60.0  # seconds, on a busy machine
MOST = 1000  # matches
_SEARCH = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
pattern, text = json.load(sys.stdin)
spans = []
for one in re.finditer(pattern, text):
    if one[1]:
        spans.append(one.span(1))
    if len(spans) > int(sys.argv[2]):
        break
print(json.dumps(spans))
"""


def first_groups(pattern: str, text: str) -> list[tuple[int, int]]:
    """Where the first group of each match is, if it is not empty. Raises ConfigError when that takes too long, or for
    too many matches."""
    # The text holds secrets: it goes through a pipe, and none of it is printed.
    command = [sys.executable, "-I", "-S", "-c", _SEARCH, str(SECONDS), str(MOST)]
    try:
        done = subprocess.run(
            command, input=json.dumps([pattern, text]), capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        raise ConfigError(
            "the search for what to mask takes longer than {seconds} seconds: use a simpler pattern", seconds=SECONDS
        ) from None
    spans = [(start, end) for start, end in json.loads(done.stdout)]
    if len(spans) > MOST:
        raise ConfigError("more than {most} matches are to be masked: use a narrower pattern", most=MOST)
    return spans
