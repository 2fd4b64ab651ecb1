"""The messages of the protocol, as types: a request is checked against them before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from sandbox.result import OUTPUT_LIMIT

Id = int | Annotated[str, Meta(max_length=256)]
Path = Annotated[str, Meta(min_length=1, max_length=4096)]
Command = Annotated[str, Meta(min_length=1)] | Annotated[list[str], Meta(min_length=1)]
Seconds = Annotated[float, Meta(gt=0, le=10**9)]
Rows = Annotated[int, Meta(ge=1, le=10_000)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
Bytes = Annotated[int, Meta(ge=1, lt=2**62)]
Mode = Annotated[int, Meta(ge=0, le=0o7777)]


class Message(Struct):
    """A request (`method` and `id`), a notification (`method` alone) or the answer to a request of the server's."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    params: Raw = Raw(b"{}")
    id: Id | UnsetType = UNSET
    result: Any = UNSET
    error: Any = UNSET


class Nothing(Struct, forbid_unknown_fields=True):
    """A method without parameters."""


class Close(Struct, forbid_unknown_fields=True):
    """`close`: how many seconds the requests sent before it have to finish."""

    grace: Annotated[float, Meta(ge=0, le=10**9)] = 5.0


class _Command(Struct, forbid_unknown_fields=True, kw_only=True):
    """What every method that runs a command takes."""

    working_dir: Path | None = None
    cwd: Path | None = None
    env: dict[str, str] | None = None
    timeout: Seconds | None = None

    def __post_init__(self) -> None:
        if self.cwd is not None and self.working_dir is not None:
            raise ValueError("`cwd` and `working_dir` mean the same: give one of them")

    @property
    def directory(self) -> str | None:
        """Where the command starts."""
        return self.cwd if self.cwd is not None else self.working_dir


class Exec(_Command, kw_only=True):
    """`exec`: text for the shell, or a list of arguments that no shell interprets."""

    command: Command
    stdin: bytes | None = None
    max_output: Annotated[int, Meta(ge=0, le=64 * 2**20)] = OUTPUT_LIMIT


class ExecStream(_Command, kw_only=True):
    """`exec_stream`: as `exec`, but every piece of output is sent as it comes."""

    command: Command
    stdin: bytes | None = None
    credit: Bytes | None = None


class ExecPipe(_Command, kw_only=True):
    """`exec_pipe`: stdin is what `input` sends. With `keep` the command outlives the client and can be joined."""

    command: Command
    keep: Name | None = None
    credit: Bytes | None = None


class ExecTty(_Command, kw_only=True):
    """`exec_tty`: as `exec_pipe`, on a terminal."""

    command: Command = "exec ${SHELL:-/bin/sh}"
    rows: Rows = 24
    cols: Rows = 80
    keep: Name | None = None
    credit: Bytes | None = None


class Connect(Struct, forbid_unknown_fields=True):
    """`connect`: joins a command that was started with `keep`."""

    keep: Name
    credit: Bytes | None = None


class Dial(Struct, forbid_unknown_fields=True):
    """`dial`: a connection to a TCP port that a program inside listens on."""

    port: Annotated[int, Meta(ge=1, le=65535)]
    address: str = "127.0.0.1"
    credit: Bytes | None = None


class Gate(Struct, forbid_unknown_fields=True):
    """`gate`: the stream that carries tenants' connections to the gate of the client."""

    credit: Bytes | None = None


class View(Struct, forbid_unknown_fields=True):
    """`view`: a connection to the screen, in VNC's protocol. `control` is for the record."""

    control: bool = False
    credit: Bytes | None = None


class More(Struct, forbid_unknown_fields=True):
    """`more`: the client takes `bytes` more of the output of `request`."""

    request: Id
    bytes: Bytes


class Input(Struct, forbid_unknown_fields=True):
    request: Id
    data: bytes = b""
    end: bool = False


class Resize(Struct, forbid_unknown_fields=True):
    request: Id
    rows: Rows
    cols: Rows


class Signal(Struct, forbid_unknown_fields=True):
    request: Id
    signal: Annotated[int, Meta(ge=1, le=64)] | str


class Cancel(Struct, forbid_unknown_fields=True):
    request: Id


class WriteFile(Struct, forbid_unknown_fields=True):
    """Whole, or with `offset` one piece of it: a piece at 0 empties the file first."""

    path: Path
    content: bytes
    mode: Mode = 0o644
    offset: Annotated[int, Meta(ge=0, lt=2**62)] = 0


class ReadFile(Struct, forbid_unknown_fields=True):
    path: Path
    offset: Annotated[int, Meta(ge=0, lt=2**62)] = 0
    length: Annotated[int, Meta(ge=0, lt=2**62)] | None = None


class OnePath(Struct, forbid_unknown_fields=True):
    path: Path


class Mkdir(Struct, forbid_unknown_fields=True):
    path: Path
    mode: Mode = 0o755
    parents: bool = True


class Chmod(Struct, forbid_unknown_fields=True):
    path: Path
    mode: Annotated[int, Meta(ge=0, le=0o777)]


class Symlink(Struct, forbid_unknown_fields=True):
    """`symlink`: makes `path` a link to `target`, which is kept as it is."""

    target: Path
    path: Path


class Remove(Struct, forbid_unknown_fields=True):
    path: Path
    recursive: bool = False


class Rename(Struct, forbid_unknown_fields=True):
    old: Path
    new: Path


class Apply(Struct, forbid_unknown_fields=True):
    """`apply`: all changes, or those at or below `paths`. `reviewed`: by which `sandbox apply` knows what it showed."""

    paths: list[Path] | None = None
    overwrite: bool = False
    reviewed: str | None = None


class Extend(Struct, forbid_unknown_fields=True):
    """`extend`: seconds, or null for no limit. What is absent stays as it is."""

    lifetime: Seconds | UnsetType | None = UNSET
    idle_timeout: Seconds | UnsetType | None = UNSET


class SaveAs(Struct, forbid_unknown_fields=True):
    """`checkpoint`: under this name, or one that is made up."""

    name: str | None = None


class Fork(Struct, forbid_unknown_fields=True):
    """`fork`: how many."""

    n: int = 1


class PlacedFork:
    """`fork` where somebody else decides whether there is room: `start` makes `n` of them and returns their ids."""

    def __init__(self, n: int, start: Callable[[int], list[str]]) -> None:
        self.n, self.start = n, start


class Restore(Struct, forbid_unknown_fields=True):
    """`restore`: from this checkpoint, with what it does not hold."""

    checkpoint: str
    config: dict[str, Any] = {}
    hooks: Any = None


class PoolOpen(Struct, forbid_unknown_fields=True):
    """`pool_open`: of which sandboxes, and how many."""

    config: dict[str, Any] = {}
    size: int = 4
    late_project: bool = False
    max_age: float | None = None


class PoolGet(Struct, forbid_unknown_fields=True):
    """`pool_get`: what the sandbox gets only now."""

    project: str | None = None
    secrets: dict[str, Any] | None = None
    environment: dict[str, str] | None = None


class AllowHost(Struct, forbid_unknown_fields=True):
    """`allow_host`: an entry of `network.allowed_hosts`."""

    host: str


class OnlyTighter(dict[str, Any]):
    """Parameters of `update_network` from somebody who may only ask for less. No message is decoded as this."""


class Asks(Struct, forbid_unknown_fields=True):
    """`asks`. `watch`: this client follows `ask` events and answers, so that questions wait for it."""

    watch: bool = False


class Answer(Struct, forbid_unknown_fields=True):
    """`answer`: to the question of that number. `by` says what the person used, for the record."""

    ask: int
    answer: Annotated[str, Meta(max_length=16)]
    by: Annotated[str, Meta(max_length=64)] = ""


Anything = dict[str, Any]


class _LargeWrite(Struct, tag_field="method", tag="write_file"):
    """A whole `write_file` request. Lines that long are parsed once, not twice."""

    jsonrpc: Literal["2.0"]
    params: WriteFile
    id: Id | UnsetType = UNSET


_LARGE = 2**16

_decode = msgspec.json.Decoder(Message).decode
_decode_large = msgspec.json.Decoder(_LargeWrite).decode


def read_message(line: bytes | bytearray) -> tuple[Message, WriteFile | None]:
    """One line as a message. Its parameters are parsed when the method is known, unless they are returned here already.

    Raises msgspec.DecodeError.
    """
    if len(line) > _LARGE:
        try:
            large = _decode_large(line)
        except msgspec.ValidationError:
            pass  # another method, or a mistake: the general decoder reports it
        else:
            return Message(jsonrpc="2.0", method="write_file", id=large.id), large.params
    return _decode(line), None
