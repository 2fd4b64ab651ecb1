"""A queue with several servers, first come first served, without an event for each step of it.

Whoever asks is told at once when it will be done: nobody who comes later can change that. So a million requests cost a
million events and not ten. The answers are those of a textbook's queue; tests compare them with Erlang's formula.
"""

from __future__ import annotations

import heapq


class Servers:
    """`count` servers. Ask in the order of time."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError("a queue needs a server")
        self.count = count
        self.busy = 0.0  # seconds of work that were taken on
        self.asked = 0
        self.waited = 0.0  # seconds that all of them waited together
        self._free = [0.0] * count  # when each is free, the earliest first

    def take(self, now: float, cost: float) -> float:
        """Work of `cost` seconds that comes at `now`. Returns when it is done."""
        if cost < 0:
            raise ValueError("work cannot take less than no time")
        begin = max(now, self._free[0])
        heapq.heapreplace(self._free, begin + cost)
        self.busy += cost
        self.asked += 1
        self.waited += begin - now
        return begin + cost

    def used(self, seconds: float) -> float:
        """The share of its capacity that was taken on during so many seconds; above 1 it falls behind."""
        return self.busy / (self.count * seconds) if seconds > 0 else 0.0


def erlang_c(servers: int, offered: float) -> float:
    """The probability that somebody has to wait in M/M/c: `offered` is arrival rate times mean service time."""
    if offered >= servers:
        return 1.0
    term, total = 1.0, 1.0
    for number in range(1, servers):
        term *= offered / number
        total += term
    last = term * offered / servers * servers / (servers - offered)
    return last / (total + last)


def mean_wait(servers: int, rate: float, service: float) -> float:
    """The mean wait in line in M/M/c."""
    return erlang_c(servers, rate * service) * service / (servers - rate * service)
