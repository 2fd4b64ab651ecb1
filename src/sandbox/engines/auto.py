"""Which engine `auto` picks, and why: process walls where this machine has them, else a running container engine."""

from __future__ import annotations

import sys

from sandbox.engines.named import named
from sandbox.errors import EngineUnavailable, Message, message_of

CONTAINERS = ("docker", "podman")


class Candidate:
    """An engine that `auto` could pick."""

    __slots__ = ("name", "works", "why")

    def __init__(self, name: str, works: bool, why: str) -> None:
        self.name = name
        self.works = works
        self.why = why

    def __repr__(self) -> str:
        return f"Candidate({self.name!r}, {self.works}, {self.why!r})"


def names(platform: str = sys.platform) -> tuple[str, ...]:
    """The engines for this platform, in order of preference."""
    return ("seatbelt", "apple-container", *CONTAINERS) if platform == "darwin" else ("bubblewrap", *CONTAINERS)


def tried(name: str) -> Candidate:
    """Tries the engine: it must answer, report its version and build a sandbox. A container takes about a second."""
    try:
        missing = [one for one in named(name).findings() if one.needed and not one.ok]
    except EngineUnavailable as problem:
        return Candidate(name, False, message_of(problem))
    if missing:
        return Candidate(name, False, missing[0].detail or missing[0].remedy)
    return Candidate(name, True, Message("a sandbox was built"))


def asked(name: str) -> Candidate:
    """Asks the engine whether it is available. Builds nothing."""
    try:
        works = named(name).answers()
    except EngineUnavailable as problem:
        return Candidate(name, False, message_of(problem))
    return Candidate(name, works, Message("it answers") if works else Message("it runs on another machine"))


def preferred(platform: str = sys.platform) -> Candidate | None:
    """The first engine for this platform that builds a sandbox."""
    return next((one for one in map(tried, names(platform)) if one.works), None)


def fallback(platform: str = sys.platform) -> str | None:
    """The first container engine that answers, for where process walls are not installed. Quick: it builds nothing."""
    return next((name for name in names(platform)[1:] if asked(name).works), None)
