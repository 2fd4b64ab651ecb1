"""A queue with several servers, first come first served, without an event for each step of it.

Whoever asks is told at once when it will be done: nobody who comes later can change that. So a million requests cost a
million events and not ten. The answers are those of a textbook's queue; tests compare them with Erlang's formula.
"""

from __future__ import annotations

import heapq

import simpy


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


class SharedCores:
    """Cores that other programs use, too: everybody who has something to do gets the same share, as Linux' scheduler
    does it. So three servers get more of a busy machine than one, which no fixed number of cores can say."""

    def __init__(self, env: simpy.Environment, cores: int, others: float = 0.0) -> None:
        """`others` is how many programs of other people always have something to do."""
        self._env, self._cores, self._others = env, cores, others
        self._done = 0.0  # seconds of a core that each one has got who was there from the beginning
        self._since = 0.0
        self._waiting: list[tuple[float, int, simpy.Event]] = []  # what `_done` will be when each is through
        self._asked = 0

    def work(self, cost: float) -> simpy.Event:
        """An event that happens when so many seconds of a core were had."""
        self._move()
        self._asked += 1
        over = self._env.event()
        heapq.heappush(self._waiting, (self._done + cost, self._asked, over))
        self._wake()
        return over

    def _share(self) -> float:
        return min(1.0, self._cores / (len(self._waiting) + self._others)) if self._waiting else 0.0

    def _move(self) -> None:
        self._done += (self._env.now - self._since) * self._share()
        self._since = self._env.now

    def _wake(self) -> None:
        if self._waiting:
            left = max(0.0, self._waiting[0][0] - self._done) / self._share()
            asked = self._asked
            self._env.timeout(left).callbacks.append(lambda _: self._look(asked))

    def _look(self, asked: int) -> None:
        if asked != self._asked:
            return  # somebody came meanwhile, and it takes longer
        self._move()
        while self._waiting and self._waiting[0][0] <= self._done + 1e-9:
            heapq.heappop(self._waiting)[2].succeed()
        self._asked += 1
        self._wake()


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
