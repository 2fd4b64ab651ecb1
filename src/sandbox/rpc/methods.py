"""What clients can ask of a sandbox: functions that take a sandbox and parameters, and return a result.

They know nothing of connections, ids or JSON. A result is plain data (bytes where the protocol has base64), or a
`FileContent`, which each server sends as suits its transport. docs/rpc.md describes each method; `method_table.py` says
which functions JSON-RPC offers under which names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from sandbox.rpc import desktop_messages
from sandbox.rpc import messages as m

if TYPE_CHECKING:
    from typing import Self

    from sandbox.sandbox import Sandbox
    from sandbox.vfs.changes import Change
    from sandbox.vfs.file_state import FileState

Result = dict[str, Any]

# -- the sandbox itself


def info(sandbox: Sandbox, _: m.Nothing) -> Result:
    """What `create` answers."""
    return {
        "id": sandbox.id,
        "engine": sandbox.engine,
        "directory": sandbox.directory,
        "env": sandbox.environment,
        "ports": [dict(port) for port in sandbox.ports],
    }


def policy(sandbox: Sandbox, _: m.Nothing) -> Result:
    """The configuration in force, without secrets."""
    return dict(sandbox.config.plain())


def ports(sandbox: Sandbox, _: m.Nothing) -> Result:
    """The ports of the host that lead inside, with their real numbers."""
    return {"ports": [dict(port) for port in sandbox.ports]}


def stats(sandbox: Sandbox, _: m.Nothing) -> Result:
    """What it uses now."""
    return dict(sandbox.stats())


def processes(sandbox: Sandbox, _: m.Nothing) -> Result:
    """The commands that run now, whoever started them."""
    return {"processes": [dict(one) for one in sandbox.processes()]}


def extend(sandbox: Sandbox, asked: m.Extend) -> Result:
    """Changes how long the sandbox lives, counted from now."""
    given = {"lifetime": asked.lifetime, "idle_timeout": asked.idle_timeout}
    sandbox.extend(**{name: value for name, value in given.items() if value is not UNSET})
    return {}


def pause(sandbox: Sandbox, _: m.Nothing) -> Result:
    """Stops everything inside."""
    sandbox.pause()
    return {}


def resume(sandbox: Sandbox, _: m.Nothing) -> Result:
    """Lets everything inside continue."""
    sandbox.resume()
    return {}


def checkpoint(sandbox: Sandbox, asked: m.SaveAs) -> Result:
    """Saves the sandbox."""
    return dict(sandbox.checkpoint(asked.name))


def fork(sandbox: Sandbox, asked: m.Fork | m.PlacedFork) -> Result:
    """Makes new sandboxes that continue from here; they end with this one."""
    if isinstance(asked, m.PlacedFork):
        return {"ids": asked.start(asked.n)}
    return {"ids": sandbox._keep_forks(asked.n)}


def update_network(sandbox: Sandbox, changes: dict[str, Any]) -> Result:
    """Changes settings of the `network` section, or replaces the section with srt settings (`srt`)."""
    if isinstance(changes, m.OnlyTighter):
        return tighten_network(sandbox, changes)
    if set(changes) == {"srt"}:
        from sandbox.service import srt_config

        changes = srt_config(changes["srt"], asking=sandbox.config.network.ask).network.whole()
    sandbox.update_network(changes)
    return {}


def tighten_network(sandbox: Sandbox, changes: dict[str, Any]) -> Result:
    """The same for a client that may only tighten the policy in force."""
    from sandbox.config.restricted import tighter_network

    sandbox._change_network(lambda now: tighter_network(now.plain(), changes, sandbox.directory))
    return {}


def allow_host(sandbox: Sandbox, asked: m.AllowHost) -> Result:
    """Adds a host to those that are allowed."""
    sandbox._change_network(
        lambda now: {} if asked.host in now.allowed_hosts else {"allowed_hosts": [*now.allowed_hosts, asked.host]}
    )
    return {}


def rules_hold(sandbox: Sandbox, _: m.Nothing) -> Result:
    """Whether the path lists still name the same host files as when the sandbox was started from srt settings."""
    from sandbox.layout.named_paths import NamedPaths

    named = sandbox._companions.get(NamedPaths)
    return {"hold": named is not None and named.same()}


def launcher(sandbox: Sandbox, _: m.Nothing) -> Result:
    """The launcher, a program that runs a command in this sandbox as if it were that command; its socket; and a
    directory for notes that lead it elsewhere."""
    from sandbox.guest.binary import launcher_binary
    from sandbox.rpc.launches import Launches

    launches = sandbox._companion(Launches)
    return {"program": launcher_binary(), "socket": launches.path, "notes": launches.notes}


def answer(sandbox: Sandbox, asked: m.Answer) -> Result:
    """Answers a question to the owner."""
    sandbox._answer(asked.ask, asked.answer, f"control socket ({asked.by})" if asked.by else "control socket")
    return {}


# -- files


class FileContent:
    """A part of a file inside, opened: `size` is the whole file's, `length` how much `read` gives at most."""

    def __init__(self, sandbox: Sandbox, asked: m.ReadFile) -> None:
        """Raises OSError."""
        self._sandbox = sandbox
        self.path, self.offset = asked.path, asked.offset
        self._opened = _opened(sandbox, asked.path, os.O_RDONLY)
        self._descriptor = self._opened.__enter__()
        try:
            self.size: int = (
                sandbox.stat(asked.path)["size"] if self._descriptor is None else os.fstat(self._descriptor).st_size
            )
        except BaseException:
            self.close()
            raise
        self.length = asked.length if asked.length is not None else max(0, self.size - asked.offset)

    def read(self) -> bytes:
        """The whole part at once. Raises OSError."""
        parts = list(self.pieces())
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pieces(self) -> Iterator[bytes]:
        """The same, piece by piece as it is read. Raises OSError."""
        if self._descriptor is None:
            yield from self._sandbox._read_at(self.path, self.offset, self.length)
            return
        offset, left = self.offset, self.length
        while left > 0 and (part := os.pread(self._descriptor, left, offset)):
            yield part
            left, offset = left - len(part), offset + len(part)

    def close(self) -> None:
        self._opened.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_file(sandbox: Sandbox, asked: m.ReadFile) -> FileContent:
    """A file's content, or a part of it; the caller closes it."""
    return FileContent(sandbox, asked)


def write_file(sandbox: Sandbox, asked: m.WriteFile) -> Result:
    """Writes a file, or one piece of it."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if asked.offset == 0 else 0)
    view, at = memoryview(asked.content), asked.offset
    with _opened(sandbox, asked.path, flags, asked.mode) as descriptor:
        if descriptor is None:
            sandbox._write_at(asked.path, at, view, asked.mode)
            return {}
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written
    return {}


@contextmanager
def _opened(sandbox: Sandbox, path: str, flags: int, mode: int = 0o644) -> Iterator[int | None]:
    """A descriptor of the file; None where the host cannot open it, so that its data must go through the guest."""
    try:
        descriptor = sandbox._open_file(path, flags, mode)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def list_files(sandbox: Sandbox, asked: m.OnePath) -> Result:
    """What is in a directory. A name that is not UTF-8 has `name_bytes` too: JSON cannot show it."""
    files = [dict(one) for one in sandbox.list_files(asked.path)]
    for file in files:
        exact = os.fsencode(file["name"])
        if exact.decode("utf-8", "replace") != file["name"]:
            file["name_bytes"] = exact
    return {"files": files}


def stat(sandbox: Sandbox, asked: m.OnePath) -> Result:
    """What a path is; a link is followed."""
    return dict(sandbox.stat(asked.path))


def mkdir(sandbox: Sandbox, asked: m.Mkdir) -> Result:
    sandbox.mkdir(asked.path, asked.mode, asked.parents)
    return {}


def remove(sandbox: Sandbox, asked: m.Remove) -> Result:
    sandbox.remove(asked.path, recursive=asked.recursive)
    return {}


def rename(sandbox: Sandbox, asked: m.Rename) -> Result:
    sandbox.rename(asked.old, asked.new)
    return {}


def chmod(sandbox: Sandbox, asked: m.Chmod) -> Result:
    sandbox.chmod(asked.path, asked.mode)
    return {}


def symlink(sandbox: Sandbox, asked: m.Symlink) -> Result:
    sandbox.symlink(asked.target, asked.path)
    return {}


def read_link(sandbox: Sandbox, asked: m.OnePath) -> Result:
    """Where a link points. A target that is not UTF-8 has `target_bytes` too."""
    target = sandbox.read_link(asked.path)
    exact = os.fsencode(target)
    return {"target": target} | ({} if exact.decode("utf-8", "replace") == target else {"target_bytes": exact})


# -- an overlay project's changes


def changes(sandbox: Sandbox, _: m.Nothing) -> Result:
    """What differs from the host's files."""
    return {"changes": [_change(one) for one in sandbox.changes()]}


def _change(change: Change) -> Result:
    """A change as plain data. `before` and `after` describe what is there, without the inode."""
    plain: Result = {"path": change.path, "kind": change.kind}
    plain |= {"before": _state(change.before), "after": _state(change.after)}
    reasons = ("risk", "conflict", "impossible", "source")
    plain |= {name: value for name in reasons if (value := getattr(change, name)) is not None}
    return plain | ({"notes": change.notes} if change.notes else {})


def _state(state: FileState | None) -> Result | None:
    if state is None:
        return None
    plain: Result = {"kind": state.kind, "mode": state.mode, "size": state.size}
    return plain | ({"target": state.target} if state.target is not None else {})


def apply(sandbox: Sandbox, asked: m.Apply) -> Result:
    """Carries changes over to the host's files."""
    done = sandbox._apply_reviewed(asked.paths, asked.overwrite, asked.reviewed)
    refused = [{"path": path, "reason": reason} for path, reason in done.refused]
    return {"applied": done.applied, "refused": refused}


def discard(sandbox: Sandbox, _: m.Nothing) -> Result:
    """Ends the sandbox and throws its changes away."""
    sandbox.discard()
    return {}


def desktop(sandbox: Sandbox, asked: desktop_messages.Asked) -> Result:
    """Sees and drives the sandbox's screen, and its sound."""
    return sandbox.desktop._call(desktop_messages.method_of(asked), **asked.params())


def browser(sandbox: Sandbox, _: m.Nothing) -> Result:
    """Starts the browser, and says where it can be driven."""
    return sandbox.browser()._asdict()


class Method:
    """The type of a method's parameters, and its function."""

    def __init__(self, params: Any, run: Callable[[Sandbox, Any], Result | FileContent]) -> None:
        self.params = params
        self.run = run


METHODS = {
    "info": Method(m.Nothing, info),
    "policy": Method(m.Nothing, policy),
    "ports": Method(m.Nothing, ports),
    "stats": Method(m.Nothing, stats),
    "processes": Method(m.Nothing, processes),
    "extend": Method(m.Extend, extend),
    "pause": Method(m.Nothing, pause),
    "resume": Method(m.Nothing, resume),
    "checkpoint": Method(m.SaveAs, checkpoint),
    "fork": Method(m.Fork, fork),
    "update_network": Method(m.Anything, update_network),
    "tighten_network": Method(m.Anything, tighten_network),
    "allow_host": Method(m.AllowHost, allow_host),
    "rules_hold": Method(m.Nothing, rules_hold),
    "answer": Method(m.Answer, answer),
    "read_file": Method(m.ReadFile, read_file),
    "write_file": Method(m.WriteFile, write_file),
    "list_files": Method(m.OnePath, list_files),
    "stat": Method(m.OnePath, stat),
    "mkdir": Method(m.Mkdir, mkdir),
    "remove": Method(m.Remove, remove),
    "rename": Method(m.Rename, rename),
    "chmod": Method(m.Chmod, chmod),
    "symlink": Method(m.Symlink, symlink),
    "read_link": Method(m.OnePath, read_link),
    "changes": Method(m.Nothing, changes),
    "apply": Method(m.Apply, apply),
    "discard": Method(m.Nothing, discard),
    "browser": Method(m.Nothing, browser),
    "desktop": Method(desktop_messages.Asked, desktop),
}
