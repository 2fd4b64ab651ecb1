"""The messages of the protocol, as types: a request is checked against them before anything is done."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Id = int | Annotated[str, Meta(max_length=256)]
Path = Annotated[str, Meta(min_length=1, max_length=4096)]
Seconds = Annotated[float, Meta(gt=0, le=10**9)]
Rows = Annotated[int, Meta(ge=1, le=10_000)]


class Message(Struct):
    """A request (`method` and `id`), a notification (`method` alone) or an answer to one of ours."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    params: Raw = Raw(b"{}")
    id: Id | UnsetType = UNSET
    result: Any = UNSET
    error: Any = UNSET


class Close(Struct, forbid_unknown_fields=True):
    """`close`: how long what was sent before it may take to be answered."""

    grace: Annotated[float, Meta(ge=0, le=10**9)] = 5.0


class Exec(Struct, forbid_unknown_fields=True):
    """`exec` and `exec_stream`: a shell's command line, or an argument list that no shell looks at."""

    command: Annotated[str, Meta(min_length=1)] | Annotated[list[str], Meta(min_length=1)]
    working_dir: Path | None = None
    env: dict[str, str] | None = None
    stdin: bytes | None = None
    timeout: Seconds | None = None
    max_output: Annotated[int, Meta(ge=0, le=64 * 2**20)] = 10 * 2**20


class ExecPipe(Struct, forbid_unknown_fields=True):
    """`exec_pipe`: its stdin is what `input` sends."""

    command: Annotated[str, Meta(min_length=1)] | Annotated[list[str], Meta(min_length=1)]
    working_dir: Path | None = None
    env: dict[str, str] | None = None
    timeout: Seconds | None = None


class ExecTty(Struct, forbid_unknown_fields=True):
    """`exec_tty`: on a terminal. With `keep`, one of that name lives on when the client leaves and can be joined."""

    command: Annotated[str, Meta(min_length=1)] | Annotated[list[str], Meta(min_length=1)] = "exec ${SHELL:-/bin/sh}"
    working_dir: Path | None = None
    env: dict[str, str] | None = None
    timeout: Seconds | None = None
    rows: Rows = 24
    cols: Rows = 80
    keep: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] | None = None


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
    mode: Annotated[int, Meta(ge=0, le=0o7777)] = 0o644
    offset: Annotated[int, Meta(ge=0, lt=2**62)] = 0


class ReadFile(Struct, forbid_unknown_fields=True):
    path: Path
    offset: Annotated[int, Meta(ge=0, lt=2**62)] = 0
    length: Annotated[int, Meta(ge=0, lt=2**62)] | None = None


class OnePath(Struct, forbid_unknown_fields=True):
    path: Path


class Remove(Struct, forbid_unknown_fields=True):
    path: Path
    recursive: bool = False


class Rename(Struct, forbid_unknown_fields=True):
    old: Path
    new: Path


Anything = dict[str, Any]


class _LargeWrite(Struct, tag_field="method", tag="write_file"):
    """A whole `write_file`, for lines so long that going over them twice would be felt."""

    jsonrpc: Literal["2.0"]
    params: WriteFile
    id: Id | UnsetType = UNSET


_LARGE = 2**16

_decode = msgspec.json.Decoder(Message).decode
_decode_large = msgspec.json.Decoder(_LargeWrite).decode


def read_message(line: bytes | bytearray) -> tuple[Message, WriteFile | None]:
    """One line as a message; its parameters are read when the method is known, unless they came along already.

    Raises msgspec.DecodeError.
    """
    if len(line) > _LARGE:
        try:
            large = _decode_large(line)
        except msgspec.ValidationError:
            pass  # another method, or a mistake: the usual way tells
        else:
            return Message(jsonrpc="2.0", method="write_file", id=large.id), large.params
    return _decode(line), None
