"""The bodies of requests and answers, with examples: what the OpenAPI document shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar.params import Parameter
from msgspec import Meta, Struct

from sandbox.result import OUTPUT_LIMIT
from sandbox.rpc.messages import Command, Path, Rows, Seconds

# Never like an id (`vm-…`): a name must not be mistaken for somebody else's sandbox.
_NAME = r"^(?!vm-)[A-Za-z0-9][A-Za-z0-9_.-]{0,62}(?!\n)$"
Name = Annotated[str, Meta(pattern=_NAME, examples=["research"])]
NameInPath = Annotated[str, Parameter(pattern=_NAME)]  # Litestar does not look at a `Meta` in a path
Text = Annotated[str, Meta(max_length=4096)]
Port = Annotated[int, Meta(ge=1, le=65535)]


class Created(Struct, forbid_unknown_fields=True, kw_only=True):
    """A sandbox to create. `config` has the settings of docs/config.md; what widens the owner's needs scope `host`."""

    config: Annotated[dict[str, Any], Meta(examples=[{"limits": {"memory": "512m"}}])] = {}
    name: Name | None = None


class Described(Struct, kw_only=True):
    """A sandbox. `owner` is "server" for one that ends with this server, else "process"."""

    id: Annotated[str, Meta(examples=["vm-a1b2c3d4"])]
    name: str
    status: Literal["running", "stopped", "crashed", "paused"]
    engine: str
    image: str | None
    command: list[str]
    created_at: str
    owner: Literal["server", "process"]
    root: str
    mode: str
    ports: list[dict[str, Any]]
    changes: bool


class Listed(Struct):
    sandboxes: list[Described]


class Detailed(Struct, kw_only=True):
    """A sandbox with everything known about it. `stats` is null when it is not running."""

    sandbox: Described
    config: dict[str, Any]
    stats: dict[str, Any] | None
    directory: str


class Exec(Struct, forbid_unknown_fields=True, kw_only=True):
    """A command: text for the shell, or a list of arguments. `stdin` is text, or bytes as `stdin_base64`."""

    command: Annotated[Command, Meta(examples=["python -c 'print(42)'", ["ls", "-l"]])]
    cwd: Path | None = None
    env: dict[str, str] | None = None
    stdin: str | None = None
    stdin_base64: bytes | None = None
    timeout: Seconds | None = None
    max_output: Annotated[int, Meta(ge=0, le=64 * 2**20)] = OUTPUT_LIMIT
    encoding: Literal["text", "base64"] = "text"

    @property
    def input(self) -> bytes | None:
        return self.stdin.encode("utf-8", "surrogatepass") if self.stdin is not None else self.stdin_base64


class Ended(Struct, kw_only=True, omit_defaults=True):
    """How a command ended. Any exit code is an answer, not an error."""

    exit_code: int
    stdout: str
    stderr: str
    duration_ms: int
    user_ms: int
    system_ms: int
    max_rss_kb: int
    signal: int | None = None
    timed_out: bool = False
    out_of_memory: bool = False
    truncated: bool = False
    note: str = ""


class Start(Struct, forbid_unknown_fields=True, kw_only=True):
    """The first message of a WebSocket that runs a command."""

    command: Command | None = None
    cwd: Path | None = None
    env: dict[str, str] | None = None
    timeout: Seconds | None = None
    keep: Name | None = None
    rows: Rows = 24
    cols: Rows = 80


class Size(Struct, forbid_unknown_fields=True):
    rows: Rows
    cols: Rows


class Control(Struct, forbid_unknown_fields=True, kw_only=True):
    """Any later text message of such a WebSocket: one of these."""

    resize: Size | None = None
    signal: Annotated[str, Meta(max_length=16)] | None = None
    stdin_end: bool = False


class Answer(Struct, forbid_unknown_fields=True):
    """ "once", "sandbox" (until it ends), "always" (also in the owner's config; needs scope `host`) or "deny"."""

    answer: Literal["once", "sandbox", "always", "deny"]


class Forks(Struct, forbid_unknown_fields=True):
    """How many forks to start."""

    count: Annotated[int, Meta(ge=1, le=64)] = 1


class SaveAs(Struct, forbid_unknown_fields=True):
    """The checkpoint's name; without one, a name is generated."""

    name: Annotated[str, Meta(min_length=1, max_length=64, examples=["prepared"])] | None = None


class Saved(Struct, kw_only=True):
    """A checkpoint. `saves` says what it contains; `lost` lists files that were open but no longer had a path."""

    name: Annotated[str, Meta(examples=["prepared"])]
    sandbox: Annotated[str, Meta(examples=["vm-a1b2c3d4"])]
    engine: Annotated[str, Meta(examples=["bubblewrap"])]
    saves: Annotated[str, Meta(description="machine or files", examples=["files"])]
    size: Annotated[int, Meta(description="bytes on the disk", examples=[40960])]
    created: Annotated[float, Meta(description="seconds since 1970", examples=[1790000000.0])]
    lost: list[str]


class SavedOnes(Struct):
    checkpoints: list[Saved]


class Restored(Struct, forbid_unknown_fields=True, kw_only=True):
    """A sandbox to start from a checkpoint. `config` must supply what a checkpoint does not save, such as secrets."""

    config: dict[str, Any] = {}
    name: Name | None = None


class Paths(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which changes: all of them, or those at or below `paths`."""

    paths: list[Path] | None = None
    overwrite: bool = False


class Allow(Struct, forbid_unknown_fields=True, kw_only=True):
    """A host to allow for this sandbox, or always (in the owner's config). Needs scope `host`."""

    host: Annotated[str, Meta(max_length=300, examples=["pypi.org:443"])]
    answer: Literal["sandbox", "always"] = "sandbox"


class Feed(Struct):
    """Entries of the record, the oldest first."""

    entries: list[dict[str, Any]]
    last: int


class Verdict(Struct):
    """Whether the record's chain of hashes holds, and where it breaks."""

    intact: bool
    count: int
    problem: str
    file: str
    line: int


class Done(Struct):
    """It worked."""

    ok: bool = True
