"""A pool: sandboxes that are built ahead from one configuration, and handed out once each.

    with Pool({"image": "debian"}, size=8) as pool:
        with pool.get(environment={"CASE": "7"}) as sb:
            sb.exec("./run-case")
        for outcome in pool.map("./run-case \"$1\"", range(100)):
            print(outcome.item, outcome.value.exit_code)

`shelf.py` builds, checks and discards; `late.py` gives what a sandbox gets only when it is handed out.
"""

from __future__ import annotations

import atexit
import os
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from sandbox import arguments
from sandbox.building import take_providers
from sandbox.config.from_program import read_config
from sandbox.config.section import owned
from sandbox.engines.choose import choose, with_mode_defaults
from sandbox.engines.require import require
from sandbox.errors import ConfigError, InvalidArgument
from sandbox.hook_names import names_of
from sandbox.pool import late
from sandbox.pool.launchers import Launchers
from sandbox.pool.mapped import Mapped
from sandbox.pool.outcome import checked_concurrency, checked_retries
from sandbox.pool.ready import ReadySandboxes, build
from sandbox.pool.shelf import MAX_AGE, MOST, PoolStats, Shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from sandbox.arguments import Command
    from sandbox.config.from_program import Given
    from sandbox.engines.base import Engine
    from sandbox.sandbox import Sandbox


class Pool:
    """Keeps `size` sandboxes of one configuration ready. Safe to use from many threads.

    A sandbox is handed out once: the caller closes it, and it is never put back. Closing the pool ends the sandboxes
    that were not handed out, and leaves the others alone.
    """

    def __init__(
        self,
        config: Given = None,
        *,
        size: int = 4,
        late_project: bool = False,
        max_age: float = MAX_AGE,
        hooks: object | None = None,
        resolve: Callable[[str, int], Sequence[str]] | None = None,
    ) -> None:
        """Begins to build in the background, and returns at once.

        With `late_project`, the project is given with `get(project=…)`: then the pool keeps launchers ready, and the
        walls with all their guards are built around the project when it is known. A sandbox that has waited for
        `max_age` seconds is ended and another one built. Each sandbox gets `hooks` and `resolve`, as for `Sandbox`.
        Raises ConfigError, EngineUnavailable, InvalidArgument.
        """
        if type(size) is not int or not 0 < size <= MOST:
            raise InvalidArgument("size must be a number from 1 to {most}", most=MOST)
        if hooks is not None:
            names_of(hooks)
        self.size = size
        self._config = owned(config)
        plain, _ = take_providers(self._config)
        checked = with_mode_defaults(read_config(plain))
        engine = choose(checked)
        require(checked, engine)
        self.engine = engine.name
        self._late_project = late_project
        self._owner = os.getpid()
        age = arguments.seconds(max_age, "max_age") or MAX_AGE
        self._build = partial(build, hooks=hooks, resolve=resolve)
        self._shelf = self._make_shelf(engine, age)
        self._at_exit = partial(_close_forgotten, ref(self))
        atexit.register(self._at_exit)
        self._shelf.start()

    def _make_shelf(self, engine: Engine, age: float) -> Shelf[Any]:
        if not self._late_project:
            return ReadySandboxes(partial(self._build, self._config), self.size, age)
        if not engine.can.waits:
            raise ConfigError(
                "the {name} engine cannot take a project late; make one pool for each project", name=engine.name,
                path="engine",
            )  # fmt: skip
        return Launchers(engine, self.size, age)

    def get(
        self,
        *,
        project: str | os.PathLike[str] | None = None,
        secrets: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Sandbox:
        """Hands out a sandbox, which is the caller's to close. When none is ready, one is built here and now.

        `secrets` are entries as in `network.secrets`, `environment` variables for every command; "${NAME}" in them is
        the placeholder of that secret. `project` is for a pool with `late_project`. Raises ConfigError or
        InvalidArgument for what cannot be given, SandboxClosed when the pool is closed, and what `Sandbox` raises.
        """
        if os.getpid() != self._owner:
            raise InvalidArgument("a pool belongs to the process that made it; make another one after a fork")
        given = late.checked(environment)
        if self._late_project:
            return self._with_project(project, secrets, given)
        if project is not None:
            raise InvalidArgument(
                "this pool's sandboxes have their project already; make the pool with late_project=True, or one pool "
                "for each project"
            )
        sandbox: Sandbox = self._shelf.take()
        try:
            late.give(sandbox, secrets, given)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def _with_project(
        self, project: str | os.PathLike[str] | None, secrets: Mapping[str, Any] | None, given: Mapping[str, str]
    ) -> Sandbox:
        if project is None:
            raise InvalidArgument(
                "this pool was made with late_project=True: say project=… when a sandbox is handed out"
            )
        root = os.path.abspath(os.path.expanduser(os.fspath(project)))
        config = late.complete(self._config, root, secrets, given)
        sandbox: Sandbox = self._build(config, launcher=self._shelf.take())
        late.handed_out(sandbox, {"project": True, "secrets": bool(secrets), "environment": bool(given)})
        return sandbox

    def map(
        self,
        work: Command | Callable[[Sandbox, Any], Any],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        timeout: float | None = None,
        retries: Mapping[str, int] | None = None,
        give: Callable[[Any], Mapping[str, Any]] | Mapping[str, Any] | None = None,
        progress: bool | None = None,
    ) -> Mapped:
        """Does `work` for each item, each in a sandbox of its own; returns the outcomes to iterate over as they come.

        A command gets the item as its last argument; text is run by the shell, where the item is "$1". A function is
        called with the sandbox and the item, in a thread. At most `concurrency` items run at a time, by default the
        pool's size; `timeout` is for each command. `retries` says how often to try again for which reason (by default
        {"lost": 2}): docs/pools.md. `give` has the arguments for `get`, or is a function that makes them from the item.
        `progress` shows a bar; by default only on a terminal. Raises InvalidArgument.
        """
        most = checked_concurrency(concurrency, self.size)
        limit = arguments.seconds(timeout)
        return Mapped(self.get, work, items, most, limit, checked_retries(retries), give, progress)

    def fill(self, timeout: float | None = None) -> bool:
        """Waits until all are ready, or `timeout` seconds. Returns whether they are. Raises the last build's error."""
        return self._shelf.fill(timeout)

    def stats(self) -> PoolStats:
        """Returns how many are ready, and how many were built, handed out and discarded."""
        return self._shelf.stats()

    def close(self) -> None:
        """Ends the sandboxes that were not handed out; the others go on. Idempotent."""
        atexit.unregister(self._at_exit)
        if os.getpid() == self._owner:
            self._shelf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if "_at_exit" in self.__dict__:  # its constructor got that far
            self.close()


def _close_forgotten(pool: ref[Pool]) -> None:
    """Closes a pool at the end of the program."""
    if (living := pool()) is not None:
        living.close()
