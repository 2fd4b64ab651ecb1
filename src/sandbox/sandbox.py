"""One sandbox's life: config, walls, commands, record."""

from __future__ import annotations

import errno
import os
import stat
from threading import Lock

from sandbox.audit.record import Record
from sandbox.config.home import home
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
    from sandbox.vfs.changes import Change
    from sandbox.vfs.mounts import Mounts
    from sandbox.vfs.provider import Provider
    from sandbox.vfs.watch import Watch
    from sandbox.vfs.workspace import Applied, Workspace

    Words = str | Sequence[str | bytes]

OUTPUT_LIMIT = 10 * 2**20
FILE_LIMIT = 2**30
PIECE = 2**20


class Sandbox:
    """A place behind walls, from construction to `close()`. Safe to use from many threads; any number per process."""

    def __init__(self, config: Config | Mapping[str, Any] | None = None, *, hooks: object | None = None) -> None:
        """Builds the walls at once. `hooks`: see docs/vfs.md for files.

        Raises ConfigError, EngineUnavailable, WallError or LimitUnavailable; then nothing is left behind.
        """
        config, providers = take_providers(config)
        self.config = tightened(read_config(config))
        self.id = f"vm-{os.urandom(4).hex()}"
        self._events = Events()
        self._lock = Lock()
        self._closed = False
        self._owner = os.getpid()
        self.record = open_record(self.config, self.id)
        try:
            self._build()
        except BaseException as problem:
            self.record.write("sandbox_lifecycle", f"failed: {type(problem).__name__}", severity="error")
            self.record.close()
            raise

    def _build(self) -> None:
        engine = choose(self.config)
        build = without_walls if engine.name == "none" else layout
        self._plan = build(self.config, self.id, os.environ)
        self._plan.pids = default_pids(self.config)
        self._mounts = self._own_directories(providers, hooks) if has_mounts(self.config) else None
        try:
            self._place = engine.open(self._plan)
        except BaseException:
            if self._mounts is not None:
                self._mounts.close()
            raise
        self._guest = self._place.guest
        if self._mounts is not None:
            self._mounts.serve(self._guest.devices)
        self._watch = self._watched() if self.config.vfs.file_events else None
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.engine = engine.name
        self._lifecycle("ready", mode=self.config.mode, engine=engine.name, masked=self._plan.masked)

    def _own_directories(self, providers: dict[str, Provider], hooks: object | None) -> Mounts:
        """The directories that are more than the host's files: see `vfs/plan.py`."""
        from sandbox.vfs.mounts import Mounts

        state = None
        if self.config.filesystem.overlay:
            from sandbox.config.home import home
            from sandbox.vfs.workspace import Workspace

            state = Workspace.begin(home(), self.id, self._plan.directory).directory
        mounts = Mounts(self.config, providers, hooks=hooks, emit=self._file_event, state=state)
        mounts.furnish(self._plan)
        return mounts

    def _watched(self) -> Watch:
        """Watches what the kernel serves; what goes through FUSE tells by itself."""
        from sandbox.vfs.watch import Watch

        served = {path for path, way in (self._mounts.ways if self._mounts else {}).items() if way == "FUSE"}
        flags = os.O_RDONLY | os.O_DIRECTORY
        trees: dict[str, int] = {}
        for path in (self._plan.directory, *(self._mounts.ways if self._mounts else ())):
            if path not in served and path not in trees:
                trees[path] = self._guest.file("open", os.fsencode(path), flags=flags)[1][0]
        return Watch(trees, self._file_event)

    def _file_event(self, operation: str, path: str, size: int) -> None:
        self._events.emit(event("file", op=operation, path=path, size=size))

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
        # The program only: arguments may hold secrets, and the record must not.
        self.record.write(
            "policy_decision",
            f"ran {os.path.basename(os.fsdecode(argv[0]))}",
            operation="exec",
            target=os.fsdecode(argv[0]),
            result="allowed",
            policy=f"mode-{self.config.mode}",
            metadata={"exitCode": result.exit_code, "durationMs": result.duration_ms},
        )
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
        try:
            regular = stat.S_ISREG(os.fstat(fd).st_mode)
        except PermissionError:
            # The kernel lets only tenants into a FUSE mount of theirs, not even us who serve it.
            os.close(fd)
            raise OSError(errno.EXDEV, "served by a provider: use read_file and write_file", path) from None
        if not regular:
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", path)
        os.set_blocking(fd, True)
        return fd

    def read_file(self, path: str, max_bytes: int = FILE_LIMIT) -> bytes:
        """The content of a file inside. Raises OSError, also when it is larger than `max_bytes`."""
        parts, room = [], max_bytes
        for part in self._pieces(path):
            parts.append(part)
            room -= len(part)
            if room < 0:
                raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
        return b"".join(parts)

    def write_file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Makes or replaces the content of a file inside. Raises OSError."""
        data = memoryview(content.encode() if isinstance(content, str) else content)
        try:
            fd = self.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
            for at in range(0, len(data) or 1, PIECE):
                piece = bytes(data[at : at + PIECE])
                self._guest.file("write", self._path(path), offset=at, data=piece, mode=mode & 0o777, truncate=at == 0)
            return
        with os.fdopen(fd, "wb", buffering=0) as file:
            while data:
                data = data[file.write(data) :]

    def _pieces(self, path: str) -> Iterator[bytes]:
        """A file's content: by its descriptor, or asked for piece by piece where only tenants can open it."""
        try:
            fd = self.open_file(path, os.O_RDONLY)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
            offset = 0
            while True:
                answer, _ = self._guest.file("read", self._path(path), offset=offset, size=PIECE)
                if not answer["data"]:
                    return
                offset += len(answer["data"])
                yield answer["data"]
        with os.fdopen(fd, "rb", buffering=0) as file:
            while part := file.read(PIECE):
                yield part

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

    # -- an overlay project's changes

    def changes(self) -> list[Change]:
        """What tenants changed in an overlay project (`filesystem.overlay`), compared with the host's files now."""
        return self._workspace().changes()

    def apply(self, paths: Sequence[str] | None = None) -> Applied:
        """Carries changes over to the host's files: all of them, or those at or below `paths`. See docs/overlay.md."""
        return self._workspace().apply(paths)

    def discard(self) -> None:
        """Ends the sandbox and throws the changes away."""
        workspace = self._workspace()
        self.close()
        workspace.discard()

    def _workspace(self) -> Workspace:
        from sandbox.config.home import home
        from sandbox.vfs.workspace import Workspace

        return Workspace.find(home(), self.id)

    # -- telling

    def on_event(self, handler: Handler) -> Callable[[], None]:
        """Calls `handler` with every event from now on; returns what ends that."""
        return self._events.subscribe(handler)

    def _lifecycle(self, state: str, **details: str | int) -> None:
        self._events.emit(event("lifecycle", state=state, id=self.id))
        self.record.write("sandbox_lifecycle", state, metadata=details)

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
        if self._watch is not None:
            self._watch.close()
        if self._mounts is not None:
            self._mounts.close()
        os.close(self._null)
        self._lifecycle("stopped")
        self.record.close()

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


def take_providers(
    config: Config | Mapping[str, Any] | None,
) -> tuple[Config | Mapping[str, Any] | None, dict[str, Provider]]:
    """Provider objects among a caller's `vfs.mounts`, apart from the plain rest."""
    if config is None or isinstance(config, Config) or not (config.get("vfs") or {}).get("mounts"):
        return config, {}
    from sandbox.vfs.plan import take_providers

    return take_providers(config)


def has_mounts(config: Config) -> bool:
    """Whether there are directories that are more than the host's files; most sandboxes have none."""
    vfs = config.vfs
    return bool(vfs.mounts or vfs.direct_mounts or config.filesystem.overlay)


def read_config(config: Config | Mapping[str, Any] | None) -> Config:
    """The configuration as one model. Raises ConfigError."""
    if isinstance(config, Config):
        return config
    given = dict(config or {})
    if "resources" in given or "env" in given:
        from sandbox.config.dialects.create import translate

        given = translate(given).data
    return Config.read(given)


def open_record(config: Config, identity: str) -> Record:
    """The record this sandbox writes to. Raises SandboxError: without a record nothing runs."""
    directory = config.audit.directory or os.path.join(home(), "audit")
    return Record(os.path.expanduser(directory), sandbox=identity, rotate_size=config.audit.rotate_size)


def _argv(command: Words) -> list[bytes]:
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if not words:
        raise SandboxError("an empty command")
    return [os.fsencode(word) for word in words]


def _pairs(environment: Mapping[str, str]) -> list[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in environment.items()]
