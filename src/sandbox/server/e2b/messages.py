"""The messages of E2B's daemon, as types. Names are camel case on the wire; unknown fields are ignored, as in E2B."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Path = Annotated[str, Meta(max_length=4096)]
Id = Annotated[str, Meta(max_length=64)]
Text = Annotated[str, Meta(max_length=131_072)]  # one argument, as the kernel limits it
Pid = Annotated[int, Meta(ge=0, lt=2**32)]
Cells = Annotated[int, Meta(ge=1, le=10_000)]
Variables = Annotated[dict[Annotated[str, Meta(min_length=1, max_length=1024)], Text], Meta(max_length=1024)]


class Wire(Struct, rename="camel", kw_only=True):
    """Every message."""


class Nothing(Wire):
    pass


# -- processes


class Size(Wire):
    cols: Cells
    rows: Cells


class Pty(Wire):
    size: Size


class ProcessConfig(Wire):
    cmd: Annotated[Text, Meta(min_length=1)]
    args: Annotated[list[Text], Meta(max_length=4096)] = []
    envs: Variables = {}
    cwd: Path | None = None


class Start(Wire):
    """`stdin` defaults to true for old clients, which do not send it but expect a stdin."""

    process: ProcessConfig
    pty: Pty | None = None
    tag: Id | None = None
    stdin: bool = True


class Selector(Wire):
    pid: Pid | None = None
    tag: Id | None = None


class OfProcess(Wire):
    process: Selector


class Input(Wire):
    stdin: bytes | None = None
    pty: bytes | None = None

    @property
    def data(self) -> bytes:
        return self.stdin or self.pty or b""


class SendInput(Wire):
    process: Selector
    input: Input


class SendData(Wire):
    input: Input


class StreamedInput(Wire):
    """One message of a stream of input: first which process, then the input."""

    start: OfProcess | None = None
    data: SendData | None = None
    keepalive: Any = None


class SendSignal(Wire):
    process: Selector
    signal: Literal["SIGNAL_SIGTERM", "SIGNAL_SIGKILL", 9, 15]


class Update(Wire):
    process: Selector
    pty: Pty | None = None


# -- files


class OnePath(Wire):
    path: Path = ""


class Move(Wire):
    source: Path
    destination: Path


class ListDir(Wire):
    path: Path = ""
    depth: Annotated[int, Meta(ge=0, lt=2**32)] = 1


class WatchDirectory(Wire):
    path: Path = ""
    recursive: bool = False
    include_entry: bool = False
    allow_network_mounts: bool = False


class OfWatcher(Wire):
    watcher_id: Id


# -- code


class CreateContext(Struct):
    cwd: Path | None = None
    language: Id | None = None


class Execute(Struct):
    code: Annotated[str, Meta(max_length=8 * 2**20)]
    context_id: Id | None = None
    language: Id | None = None
    env_vars: Variables | None = None
