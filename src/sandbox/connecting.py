"""`connect`: called on the class, it returns a sandbox on a server; on a sandbox, a command that runs in it.

sandbox = Sandbox.connect("https://sandboxes.example.org", token)
process = sandbox.connect("build")          # was started with keep="build"
"""

from __future__ import annotations

from sandbox.wiring import Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol, overload

    from sandbox.client import Client
    from sandbox.commands import Commands
    from sandbox.protocols import Process

    class Remote(Protocol):
        """The type of `Sandbox.connect`."""

        def __call__(
            self,
            url: str,
            token: str,
            config: Mapping[str, Any] | None = None,
            *,
            id: str | None = None,
            hooks: object | None = None,
            certificates: str | None = None,
        ) -> Client: ...


def remote(
    url: str,
    token: str,
    config: Mapping[str, Any] | None = None,
    *,
    id: str | None = None,
    hooks: object | None = None,
    certificates: str | None = None,
) -> Client:
    """Creates a sandbox on a server (`sandbox serve`), or with `id` uses one that runs there: docs/server.md.

    What it returns has the same methods. A sandbox created this way ends when it is closed, or when this process ends.
    `certificates` is a file of certificates to trust in place of the system's. Raises what `Sandbox` raises, Denied
    when the token may not do that, and SandboxError when the server cannot be reached.
    """
    return Wiring.remote(url, token, config, id=id, hooks=hooks, certificates=certificates)


class Connect:
    """A descriptor: `remote` on the class, `_join` on a sandbox."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, sandbox: None, kind: type) -> Remote: ...

        @overload
        def __get__(self, sandbox: Commands, kind: type) -> Callable[[str], Process]: ...

    def __get__(self, sandbox: Commands | None, kind: type) -> Remote | Callable[[str], Process]:
        return remote if sandbox is None else sandbox._join
