"""A sandbox in another process, with the methods of `Sandbox`.

    with Client({"network": {"allowed_hosts": ["pypi.org"]}}) as sb:   # starts `sandbox --rpc`
        print(sb.exec("echo hello").stdout)

    sb = attach("vm-a1b2c3d4")                                         # one that runs already

Errors are the same exceptions that `Sandbox` raises; what has no counterpart is `RpcError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.result import Chunk, Collector, ExecResult
from sandbox.rpc.connection import Connection, Content, Stream

if TYPE_CHECKING:
    from typing import Self

    Words = str | Sequence[str]

OUTPUT_LIMIT = 10 * 2**20
FILE_LIMIT = 2**30
_PAGE = 4 * 2**20  # large files travel in pieces of this size …
_AHEAD = 3  # … of which so many are under way at a time


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
                from sandbox.rpc.hooked import answer, named

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
        command: Words,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        max_output: int = OUTPUT_LIMIT,
    ) -> ExecResult:
        """As `Sandbox.exec`."""
        asked = _asked(command, working_dir, env, timeout) | _input(stdin) | {"max_output": max_output}
        return _result(self._connection.call("exec", asked, _Ended))

    def exec_stream(
        self,
        command: Words,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Chunk | ExecResult]:
        """As `Sandbox.exec_stream`: output as it comes, the result last. A caller that stops kills the command."""
        asked = _asked(command, working_dir, env, timeout) | _input(stdin)
        with self._connection.stream("exec_stream", asked) as stream:
            yield from _pieces(stream)

    def spawn(
        self,
        command: Words,
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
        rest = [page.content for page in self._connection.pipelined(requests, _AHEAD, Content)]
        return b"".join((first.content, *rest))

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

    def close(self) -> None:
        """Ends the sandbox that this client started; only leaves one that it attached to. Idempotent."""
        if self._owns and not self._connection.ended:
            self._connection.call("close", {})
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attach(id: str) -> Client:
    """A client of a sandbox that runs already. Raises NotFound, or SandboxError when it cannot be reached."""
    from sandbox.registry.vms import get_vm

    entry = get_vm(id)
    client = Client(connection=Connection.to_socket(entry))
    client.id = entry.id
    return client


class RemoteProcess:
    """A command that runs in the other process's sandbox. Closing it kills the command (or leaves a kept terminal)."""

    def __init__(self, connection: Connection, stream: Stream) -> None:
        self._connection = connection
        self._stream = stream
        started = stream.next()
        self.pid: int = started["pid"]
        self.joined: bool = started.get("joined", False)
        self.result: ExecResult | None = None

    def write(self, data: bytes) -> None:
        """Gives the command input; returns when it has been taken. Raises RpcError when it reads no more."""
        self._connection.call("input", {"request": self._stream.id, "data": data})

    def close_stdin(self) -> None:
        """Ends the command's input."""
        self._connection.call("input", {"request": self._stream.id, "end": True})

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group."""
        self._connection.call("signal", {"request": self._stream.id, "signal": number})

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size."""
        self._connection.call("resize", {"request": self._stream.id, "rows": rows, "cols": columns})

    def kill(self) -> None:
        """Kills every process of the command."""
        import signal

        self.signal(signal.SIGKILL)

    def chunks(self) -> Iterator[Chunk]:
        """Output as it comes, until the command has ended; `result` is there afterwards."""
        for piece in _pieces(self._stream):
            if isinstance(piece, ExecResult):
                self.result = piece
            else:
                yield piece

    def wait(self, max_output: int = OUTPUT_LIMIT) -> ExecResult:
        """Until it has ended; what it printed and nobody has taken is in the result."""
        output = {"stdout": Collector(max_output), "stderr": Collector(max_output)}
        for chunk in self.chunks():
            output[chunk.stream].add(chunk.data)
        assert self.result is not None
        self.result.stdout_bytes, self.result.stderr_bytes = output["stdout"].value(), output["stderr"].value()
        return self.result

    def leave(self) -> None:
        """Cancels: whoever reads `chunks` hears RpcError; a kept terminal lives on."""
        self._connection.call("cancel", {"request": self._stream.id})

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ended(msgspec.Struct):
    """The last answer of a command; output is in it for `exec` alone."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    signal: int | None = None
    timed_out: bool = False
    out_of_memory: bool = False
    truncated: bool = False
    duration_ms: int = 0
    user_ms: int = 0
    system_ms: int = 0
    max_rss_kb: int = 0
    note: str = ""


class _Piece(msgspec.Struct):
    """One answer of a streaming method, whichever it is."""

    stdout: bytes | None = None
    stderr: bytes | None = None
    exit_code: int | None = None


def _pieces(stream: Stream) -> Iterator[Chunk | ExecResult]:
    while True:
        raw = stream.next_raw()
        piece = msgspec.json.decode(raw, type=_Piece)
        if piece.exit_code is not None:
            stream.finished()
            yield _result(msgspec.json.decode(raw, type=_Ended))
            return
        if piece.stdout is not None:
            yield Chunk("stdout", piece.stdout)
        if piece.stderr is not None:
            yield Chunk("stderr", piece.stderr)


def _result(ended: _Ended) -> ExecResult:
    return ExecResult(**{name: getattr(ended, name) for name in _Ended.__struct_fields__})


def _asked(
    command: Words, working_dir: str | None, env: Mapping[str, str] | None, timeout: float | None
) -> dict[str, Any]:
    given = {"working_dir": working_dir, "env": env and dict(env), "timeout": timeout}
    words = command if isinstance(command, str) else [os.fspath(word) for word in command]
    return {"command": words} | {key: value for key, value in given.items() if value is not None}


def _input(stdin: bytes | str | None) -> dict[str, Any]:
    return {} if stdin is None else {"stdin": stdin.encode() if isinstance(stdin, str) else stdin}
