"""One sandbox's life: config, walls, commands, record."""

from __future__ import annotations

import errno
import os
import stat
from threading import Lock

from sandbox.config.model import Config
from sandbox.engines.choose import choose, default_pids, tightened
from sandbox.engines.layout import layout, without_walls
from sandbox.errors import SandboxClosed, SandboxError
from sandbox.events import Events, event
from sandbox.result import Chunk, Collector, ExecResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from sandbox.events import Handler
    from sandbox.guest.process import Process

    Words = str | Sequence[str | bytes]

OUTPUT_LIMIT = 10 * 2**20
FILE_LIMIT = 2**30


class Sandbox:
    """A place behind walls, from construction to `close()`. Safe to use from many threads; any number per process."""

    def __init__(self, config: Config | Mapping[str, Any] | None = None) -> None:
        """Builds the walls at once.

        Raises ConfigError, EngineUnavailable, WallError or LimitUnavailable; then nothing is left behind.
        """
        self.config = tightened(read_config(config))
        self.id = f"vm-{os.urandom(4).hex()}"
        self._events = Events()
        self._lock = Lock()
        self._closed = False
        self._owner = os.getpid()
        engine = choose(self.config)
        build = without_walls if engine.name == "none" else layout
        self._plan = build(self.config, self.id, os.environ)
        self._plan.pids = default_pids(self.config)
        self._place = engine.open(self._plan)
        self._guest = self._place.guest
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.engine = engine.name
        self._lifecycle("ready")

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
        """Runs a command to its end: a string by the shell, a list as it is.

        Each of stdout and stderr is kept up to `max_output` bytes; what is over is cut, with a mark. A command that
        runs longer than `timeout` seconds is killed and the result says so. Raises CommandError when it never
        started, SandboxClosed when the sandbox ended meanwhile.
        """
        out, err = Collector(max_output), Collector(max_output)
        for item in self.exec_stream(command, working_dir, env=env, stdin=stdin, timeout=timeout):
            if isinstance(item, Chunk):
                (out if item.stream == "stdout" else err).add(item.data)
            else:
                result = item
        result.stdout_bytes, result.stderr_bytes = out.value(), err.value()
        result.truncated = out.truncated or err.truncated
        return result

    def exec_stream(
        self,
        command: Words,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Chunk | ExecResult]:
        """Yields output as it comes, and the result last. A caller that stops iterating kills the command."""
        with self.begin(command, working_dir, env=env, stdin=stdin, timeout=timeout) as process:
            yield from process.chunks()
            assert process.result is not None
            yield process.result

    def begin(
        self,
        command: Words,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Process:
        """Starts a command whose whole input is known: `stdin`, or nothing. Its `chunks()` feed it and yield output."""
        null = self._null if stdin is None else None
        process = self.spawn(command, working_dir, env=env, timeout=timeout, stdin=null)
        process.given = stdin.encode() if isinstance(stdin, str) else stdin or b""
        return process

    def spawn(
        self,
        command: Words,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        pty: tuple[int, int] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Process:
        """Starts a command and returns at once; the caller talks to it and closes it.

        With `pty` (rows, columns) it gets a terminal. Else its standard streams are pipes, or the descriptors given,
        which stay the caller's. Raises SandboxClosed; a command that cannot start says so at its first `wait`.
        """
        argv = _argv(command)
        limit = min((one for one in (timeout, self.config.limits.timeout) if one is not None), default=None)
        request: dict[str, object] = {
            "argv": argv,
            "env": _pairs({**self._plan.environment, **(env or {})}),
            "cwd": os.fsencode(self._inside(working_dir or ".")),
        }
        if limit is not None:
            request["timeout_ms"] = max(1, int(limit * 1000))
        if pty is not None:
            request["pty"] = {"rows": pty[0], "cols": pty[1]}
            process = self._start(request, argv[0], [])
            process.wait_started()
        else:
            process = self._with_pipes(request, argv[0], (stdin, stdout, stderr))
        process.judge = lambda result: self._judge(argv, result)
        return process

    def _with_pipes(
        self, request: dict[str, object], name: bytes, given: tuple[int | None, int | None, int | None]
    ) -> Process:
        ours: list[int | None] = []
        theirs: list[int] = []
        made: list[int] = []
        try:
            for number, fd in enumerate(given):
                if fd is not None:
                    ours.append(None)
                    theirs.append(fd)
                    continue
                read, write = os.pipe()
                made += (read, write)
                ours.append(write if number == 0 else read)
                theirs.append(read if number == 0 else write)
            process = self._start(request, name, theirs)
        except BaseException:
            for fd in made:
                os.close(fd)
            raise
        for fd in made:
            if fd in theirs:
                os.close(fd)
        process.stdin, process.stdout, process.stderr = ours
        return process

    def _start(self, request: dict[str, object], name: bytes, stdio: list[int]) -> Process:
        if self._closed:
            raise SandboxClosed("the sandbox is closed")
        return self._guest.start(request, os.fsdecode(name), stdio)

    def _judge(self, argv: list[bytes], result: ExecResult) -> None:
        """What only the outside knows of how a command ended."""
        if result.exit_code != 0 and not result.timed_out:
            reason = self._place.out_of_memory()
            if reason is not None:
                result.out_of_memory, result.note = True, reason
        self._events.emit(
            event(
                "exec",
                command=" ".join(os.fsdecode(word) for word in argv),
                exit_code=result.exit_code,
                duration_ms=result.duration_ms,
            )
        )

    # -- files, always with a tenant's rights and through descriptors: a path cannot lead where a tenant could not go

    def open_file(self, path: str, flags: int, mode: int = 0o644) -> int:
        """A descriptor of a regular file inside. Raises OSError as `os.open` does, and for anything else."""
        _, fds = self._guest.file("open", self._path(path), flags=flags, mode=mode & 0o777)
        (fd,) = fds
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", path)
        os.set_blocking(fd, True)
        return fd

    def read_file(self, path: str, max_bytes: int = FILE_LIMIT) -> bytes:
        """The content of a file inside. Raises OSError, also when it is larger than `max_bytes`."""
        with os.fdopen(self.open_file(path, os.O_RDONLY), "rb", buffering=0) as file:
            parts, room = [], max_bytes + 1
            while room > 0 and (part := file.read(min(room, 2**20))):
                parts.append(part)
                room -= len(part)
        if room <= 0:
            raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
        return b"".join(parts)

    def write_file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Makes or replaces the content of a file inside. Raises OSError."""
        data = memoryview(content.encode() if isinstance(content, str) else content)
        with os.fdopen(self.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb", buffering=0) as file:
            while data:
                data = data[file.write(data) :]

    def list_files(self, path: str = ".") -> list[dict[str, Any]]:
        """What is in a directory inside: name, size, mode, is_dir. Raises OSError."""
        answer, _ = self._guest.file("list", self._path(path))
        if answer.get("cut"):
            raise SandboxError(f"{path} holds more entries than can be listed at once")
        return [
            {
                "name": os.fsdecode(name),
                "size": size,
                "mode": stat.S_IMODE(mode),
                "is_dir": stat.S_ISDIR(mode),
            }
            for name, mode, size, _ in answer["entries"]
        ]

    def stat(self, path: str) -> dict[str, Any]:
        """What a path inside is: size, mode, is_dir, mtime_ns. Raises OSError."""
        answer, _ = self._guest.file("stat", self._path(path), follow=True)
        mode = answer["mode"]
        return {
            "size": answer["size"],
            "mode": stat.S_IMODE(mode),
            "is_dir": stat.S_ISDIR(mode),
            "mtime_ns": answer["mtime_ns"],
        }

    def mkdir(self, path: str, mode: int = 0o755, parents: bool = True) -> None:
        """Makes a directory inside. Raises OSError."""
        self._guest.file("mkdir", self._path(path), mode=mode & 0o777, parents=parents)

    def remove(self, path: str, recursive: bool = False) -> None:
        """Removes a file or directory inside. Raises OSError."""
        self._guest.file("remove", self._path(path), recursive=recursive)

    def rename(self, old: str, new: str) -> None:
        """Renames inside. Raises OSError."""
        self._guest.file("rename", self._path(old), to=self._path(new))

    def dial(self, address: str, port: int) -> socket.socket:
        """A connection to a TCP port that a tenant listens on. Raises OSError."""
        return self._guest.dial(6 if ":" in address else 4, address, port)

    # -- telling

    def on_event(self, handler: Handler) -> Callable[[], None]:
        """Calls `handler` with every event from now on; returns what ends that."""
        return self._events.subscribe(handler)

    def _lifecycle(self, state: str) -> None:
        self._events.emit(event("lifecycle", state=state, id=self.id))

    # -- the end

    def close(self) -> None:
        """Ends every tenant and gives everything back. Idempotent; returns when nothing is left."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if os.getpid() != self._owner:
            return  # a fork's copy: the sandbox is not its to end
        self._place.close()
        os.close(self._null)
        self._lifecycle("stopped")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_place", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} {self.engine}{' closed' if self._closed else ''}>"

    def _inside(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._plan.directory, path))

    def _path(self, path: str) -> bytes:
        # Not normalised: `a/../b` means what it means inside, where `a` may be a link.
        return os.fsencode(os.path.join(self._plan.directory, path))


def read_config(config: Config | Mapping[str, Any] | None) -> Config:
    """The configuration as one model. Raises ConfigError."""
    if isinstance(config, Config):
        return config
    return Config.read(dict(config or {}))


def _argv(command: Words) -> list[bytes]:
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if not words:
        raise SandboxError("an empty command")
    return [os.fsencode(word) for word in words]


def _pairs(environment: Mapping[str, str]) -> list[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in environment.items()]
