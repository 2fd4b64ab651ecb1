"""The records of a cluster's machines as one feed, read from the machine that keeps them and verified again here."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any

from sandbox.audit import chain
from sandbox.audit.reading import Verification, parsed
from sandbox.audit.received import generation
from sandbox.cluster.identity import Identity
from sandbox.cluster.line import Line
from sandbox.errors import Message, SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from sandbox.cluster.nodes import RayNodes

_PART = 16  # bytes of a hash that are remembered


class _Chain:
    """How far one record was read, and what was wrong with it."""

    def __init__(self, before: Sequence[_Chain] = ()) -> None:
        """`before` is what was kept of the same machine's record until that was rolled back."""
        self.number = 0
        self.digest = chain.FIRST
        self.problem = ""
        self._digests = bytearray()  # the beginning of each line's hash
        self._before = before

    def add(self, line: str) -> dict[str, Any] | None:
        """The entry of the next line; None if it was kept before, or does not follow the last one, and from then on."""
        found = chain.opened(line)
        if self.problem:
            return None
        if found is None or found[1] != self.number + 1 or not chain.follows(found[0], found[2], self.digest):
            self.problem = Message("the line after {number} was altered, removed or moved", number=self.number)
            return None
        self.number, self.digest = found[1], found[2]
        self._digests += bytes.fromhex(self.digest[: 2 * _PART])
        return None if any(one.had(self.number, self.digest) for one in self._before) else parsed(line)

    def had(self, number: int, digest: str) -> bool:
        """Whether the line of that number has that hash."""
        place = (number - 1) * _PART
        return self._digests[place : place + _PART] == bytes.fromhex(digest[: 2 * _PART])


class Records:
    """A reader. Entries have the machine's short id as `node`."""

    def __init__(self, nodes: RayNodes) -> None:
        """Raises SandboxError when no machine keeps records."""
        keeper = nodes.keeper()
        if not keeper:
            raise SandboxError("the cluster has no head, which keeps the records")
        mine = Identity("sandbox audit")
        url, authority, token = nodes.ask(keeper, "keeper", *mine.shown)
        self._line = Line(url, mine.for_client(authority), token)
        self._chains: dict[str, _Chain] = {}

    def new(self) -> list[dict[str, Any]]:
        """The entries since the last call, of all machines, in the order of their times. Raises SandboxError."""
        found: list[dict[str, Any]] = []
        try:
            told = {str(one["chain"]): one for one in self._line.ask_json("GET", "/v1/cluster/records")}
            for name in sorted(told, key=generation):
                found += self._of(name, str(told[name].get("problem", "")))
        except (OSError, http.client.HTTPException) as problem:
            raise SandboxError("the node that keeps the records is gone: {problem}", problem=problem) from problem
        return sorted(found, key=lambda one: (str(one.get("timestamp", "")), one["node"], one.get("seq", 0)))

    def verdicts(self) -> dict[str, Verification]:
        """For each machine: how many entries are intact, and what is wrong after them."""
        return {name: Verification(one.number, one.problem) for name, one in self._chains.items()}

    def _of(self, name: str, problem: str) -> list[dict[str, Any]]:
        node, _ = generation(name)
        before = [one for other, one in self._chains.items() if other != name and generation(other)[0] == node]
        read = self._chains.setdefault(name, _Chain(before))
        found: list[dict[str, Any]] = []
        while not read.problem:
            lines = self._line.ask("GET", f"/v1/cluster/records/{name}/lines?after={read.number}")
            if not lines:
                break
            for line in lines.decode("ascii", "replace").splitlines(keepends=True):
                entry = read.add(line)
                if entry is not None:
                    found.append({**entry, "node": node})
        read.problem = read.problem or problem
        return found

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
