"""A sandbox in another process, with the methods of `Sandbox`.

    with Client({"network": {"allowed_hosts": ["packages.example.org"]}}) as sb:   # starts `sandbox --rpc`
        print(sb.exec("echo hello").stdout)

    sb = attach("vm-a1b2c3d4")                                         # one that runs already

Errors are the same exceptions that `Sandbox` raises; what has no counterpart is `RpcError`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox.result import Chunk, ExecResult
from sandbox.rpc.connection import Connection, Content
from sandbox.rpc.remote import Ended, RemoteProcess, pieces, result_of

if TYPE_CHECKING:
    from typing import Self

    Command = str | Sequence[str]

OUTPUT_LIMIT = 10 * 2**20
FILE_LIMIT = 2**30
_PAGE = 2 * 2**20  # large files travel in pieces of this size …
_AHEAD = 4  # … of which so many are under way at a time


class Client:
    """Drives one sandbox over JSON-RPC. Safe to use from many threads."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        hooks: object | None = None,
        command: Sequence[str] = ("sandbox", "--rpc"),
        connection: Connection | None = None,
    ) -> None:
        """Starts `command` and creates a sandbox there, or talks over a `connection` that has one already.

        `hooks` is an object as `Sandbox` takes it; its functions run here, in threads, whatever the other process does.
        """
        self._connection = connection or Connection.start(command)
        self._owns = connection is None
        self.id = ""
        self.env: dict[str, str] = {}
        if self._owns:
            asked = dict(config or {})
            if hooks is not None:
                from sandbox.rpc.hooks import answer, named

                asked["hooks"] = named(hooks)
                self._connection.hook = lambda params: answer(hooks, params)
            try:
                created = self._connection.call("create", asked)
            except BaseException:
                self._connection.close()
                raise
            self.id, self.env = created["id"], created["env"]

    # -- commands

    def exec(
        self,
        command: Command,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        max_output: int = OUTPUT_LIMIT,
    ) -> ExecResult:
        """As `Sandbox.exec`."""
        asked = _asked(command, working_dir, env, timeout) | _input(stdin) | {"max_output": max_output}
        return result_of(self._connection.call("exec", asked, Ended))

    def exec_stream(
        self,
        command: Command,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Chunk | ExecResult]:
        """As `Sandbox.exec_stream`: output as it comes, the result last. A caller that stops kills the command."""
        asked = _asked(command, working_dir, env, timeout) | _input(stdin)
        with self._connection.stream("exec_stream", asked) as stream:
            yield from pieces(stream)

    def spawn(
        self,
        command: Command,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        pty: tuple[int, int] | None = None,
        keep: str | None = None,
    ) -> RemoteProcess:
        """Starts a command and returns when it runs; with `pty` (rows, columns) on a terminal.

        With `keep` the terminal of that name is joined, or started when there is none; it outlives this client.
        """
        asked = _asked(command, working_dir, env, timeout)
        if pty is None:
            return RemoteProcess(self._connection, self._connection.stream("exec_pipe", asked))
        asked |= {"rows": pty[0], "cols": pty[1]} | ({"keep": keep} if keep else {})
        return RemoteProcess(self._connection, self._connection.stream("exec_tty", asked))

    # -- files

    def read_file(self, path: str, max_bytes: int = FILE_LIMIT) -> bytes:
        """The content of a file inside. Raises OSError."""
        first = self._connection.call("read_file", {"path": path, "offset": 0, "length": _PAGE}, Content)
        if first.size <= len(first.content):
            return first.content
        if first.size > max_bytes:
            import errno

            raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
        requests = (
            ("read_file", {"path": path, "offset": at, "length": _PAGE}) for at in range(_PAGE, first.size, _PAGE)
        )
        whole = io.BytesIO()  # which gives its content away without a copy
        whole.write(first.content)
        for page in self._connection.pipelined(requests, _AHEAD, Content):
            whole.write(page.content)
        return whole.getvalue()

    def write_file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Makes or replaces a file inside. Raises OSError."""
        view = memoryview(content.encode() if isinstance(content, str) else content)
        self._connection.call("write_file", {"path": path, "content": view[:_PAGE], "mode": mode})
        requests = (
            ("write_file", {"path": path, "content": view[at : at + _PAGE], "mode": mode, "offset": at})
            for at in range(_PAGE, len(view), _PAGE)
        )
        for _ in self._connection.pipelined(requests, _AHEAD):
            pass

    def list_files(self, path: str = ".") -> list[dict[str, Any]]:
        files: list[dict[str, Any]] = self._connection.call("list_files", {"path": path})["files"]
        return files

    def stat(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._connection.call("stat", {"path": path})
        return answer

    def mkdir(self, path: str) -> None:
        self._connection.call("mkdir", {"path": path})

    def remove(self, path: str, recursive: bool = False) -> None:
        self._connection.call("remove", {"path": path, "recursive": recursive})

    def rename(self, old: str, new: str) -> None:
        self._connection.call("rename", {"old": old, "new": new})

    # -- the rest

    def on_event(self, handler: Callable[[dict[str, Any]], object]) -> Callable[[], None]:
        """Calls `handler` with every event from now on; returns what ends that."""
        return self._connection.events.subscribe(handler)

    def update_network(self, changes: Mapping[str, Any]) -> None:
        """Changes the network rules of the living sandbox."""
        self._connection.call("update_network", dict(changes))

    def close(self, grace: float = 0.0) -> None:
        """Ends the sandbox that this client started; only leaves one that it attached to. Idempotent.

        What still runs has `grace` seconds to end by itself; without, it is killed, as by `Sandbox.close`.
        """
        if self._owns and not self._connection.ended:
            self._connection.call("close", {"grace": grace})
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attach(id: str) -> Client:
    """A client of a sandbox that runs already. Raises NotFound, or SandboxError when it cannot be reached."""
    from sandbox.registry.api import get_vm

    entry = get_vm(id)
    client = Client(connection=Connection.to_socket(entry))
    client.id = entry.id
    return client


def _asked(
    command: Command, working_dir: str | None, env: Mapping[str, str] | None, timeout: float | None
) -> dict[str, Any]:
    given = {"working_dir": working_dir, "env": env and dict(env), "timeout": timeout}
    words = command if isinstance(command, str) else [os.fspath(word) for word in command]
    return {"command": words} | {key: value for key, value in given.items() if value is not None}


def _input(stdin: bytes | str | None) -> dict[str, Any]:
    return {} if stdin is None else {"stdin": stdin.encode() if isinstance(stdin, str) else stdin}
