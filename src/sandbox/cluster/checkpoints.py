"""Checkpoints of a sandbox's files outside its machine, so that it can go on elsewhere when the machine is lost.

An object in the store is one line of JSON and two archives, which `tar` made inside, as a tenant: what was changed in
the project, and the home. Restoring also runs `tar` inside, so nothing in an archive acts on any host.
"""

from __future__ import annotations

import hashlib
import json
import os
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from sandbox.errors import InvalidArgument, SandboxError, SandboxLost
from sandbox.result import ExecResult, Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.client import Client
    from sandbox.rpc.remote import RemoteProcess

MOST = 2**28  # bytes of either archive
AT_ONCE = 2**20  # bytes of input that go with the command
KEPT = 2  # checkpoints of one sandbox
VERSION = 1
_PACK = "tar --null --no-recursion -cpf - -T -"
_FIND_HOME = r"find . -xdev -mindepth 1 \( -type d -o -type l -o -type f -readable \) -print0"
_PACK_HOME = f'cd "$HOME" && {_FIND_HOME} | {_PACK}'
_DELETE = "xargs -0 rm -rf --"
_UNPACK = "tar --recursive-unlink -xpf -"
# What a new home already has is the sandbox's own: covers, and files that guards froze.
_UNPACK_HOME = 'tar -C "$HOME" --skip-old-files -xpf -'


class Checkpoints:
    """A policy: where checkpoints go, and how often they are made.

    `store` is any URL that fsspec knows: file:///…, or s3://… with its package s3fs. They are made every `every`
    seconds; with None, only by `ClusterSandbox.save`. Raises SandboxError when the package for `store` is missing.
    """

    def __init__(self, store: str, *, every: float | None = 60.0) -> None:
        if every is not None and every <= 0:
            raise InvalidArgument("every must be more than 0 seconds")
        self.every = every
        try:
            import fsspec

            self._files, self._root = fsspec.core.url_to_fs(store)
        except (ImportError, ValueError) as problem:
            raise SandboxError(
                "checkpoints cannot be kept at {store}: {problem}", store=store, problem=problem
            ) from problem

    def put(self, name: str, number: int, content: bytes) -> None:
        """Keeps one, whole or not at all, and removes older ones. Raises OSError."""
        place = f"{self._root}/{name}"
        self._files.makedirs(place, exist_ok=True)
        part = f"{place}/.part-{os.urandom(4).hex()}"
        self._files.pipe_file(part, content)
        self._files.mv(part, f"{place}/{number:012}")
        for old in self._found(name)[:-KEPT]:
            self._files.rm_file(old)

    def last(self, name: str) -> bytes | None:
        """The newest intact one; None if there is none."""
        for path in reversed(self._found(name)):
            content: bytes = self._files.cat_file(path)
            if _opened(content) is not None:
                return content
        return None

    def forget(self, name: str) -> None:
        """Removes all of a sandbox. Idempotent."""
        if self._files.exists(f"{self._root}/{name}"):
            self._files.rm(f"{self._root}/{name}", recursive=True)

    def _found(self, name: str) -> list[str]:
        self._files.invalidate_cache()
        try:
            names = self._files.ls(f"{self._root}/{name}", detail=False)
        except FileNotFoundError:
            return []
        return sorted(one for one in names if one.rpartition("/")[2].isdecimal())


class Saving:
    """Makes the checkpoints of one sandbox."""

    def __init__(self, policy: Checkpoints, save: Callable[[], bytes]) -> None:
        self.name = f"sandbox-{os.urandom(8).hex()}"
        self._policy = policy
        self._save = save
        self._number = 0
        self._lock = Lock()
        self._ended = Event()
        self.problem = ""
        if policy.every is not None:
            Thread(target=self._run, args=(policy.every,), name="sandbox-checkpoints", daemon=True).start()

    def now(self) -> None:
        """Makes one. Raises SandboxError."""
        with self._lock:
            content = self._save()
            if self._ended.is_set():
                return  # it was closed meanwhile, and nothing may be left
            self._number += 1
            try:
                self._policy.put(self.name, self._number, content)
            except Exception as problem:  # each store has errors of its own
                raise SandboxError("the checkpoint could not be kept: {problem}", problem=problem) from problem

    def last(self) -> bytes | None:
        """The newest intact one; None if there is none. Raises SandboxLost when the store cannot be read."""
        try:
            return self._policy.last(self.name)
        except Exception as problem:
            raise SandboxLost("the checkpoints cannot be read: {problem}", problem=problem) from problem

    def stop(self) -> None:
        """Makes no more, unless one is being made. Idempotent."""
        self._ended.set()

    def forget(self) -> None:
        """Removes those there are. Call it when the sandbox is closed. Idempotent. Raises SandboxError."""
        with self._lock:
            try:
                self._policy.forget(self.name)
            except Exception as problem:
                raise SandboxError("the checkpoints could not be removed: {problem}", problem=problem) from problem

    def _run(self, every: float) -> None:
        while not self._ended.wait(every):
            try:
                self.now()
                self.problem = ""
            except SandboxError as problem:
                self.problem = str(problem)  # the next one may succeed; the last good one stays


def pack(sandbox: Client) -> bytes:
    """The sandbox's files as they are now. Raises SandboxError."""
    changes = sandbox.changes()
    deleted = [one.path for one in changes if one.after is None]
    listed = b"".join(os.fsencode(one.path) + b"\0" for one in changes if one.after is not None)
    project, home = _said(sandbox, _PACK, listed), _said(sandbox, _PACK_HOME)
    about = {
        "version": VERSION, "deleted": deleted, "project": len(project),
        "digest": hashlib.sha256(project + home).hexdigest(),
    }  # fmt: skip
    return json.dumps(about).encode() + b"\n" + project + home


def unpack(sandbox: Client, content: bytes) -> None:
    """Puts those files into a new sandbox. Raises SandboxError."""
    found = _opened(content)
    if found is None:
        raise SandboxError("the checkpoint is damaged")
    about, project, home = found
    if about["deleted"]:
        _said(sandbox, _DELETE, b"".join(os.fsencode(one) + b"\0" for one in about["deleted"]))
    _said(sandbox, _UNPACK, project)
    _said(sandbox, _UNPACK_HOME, home)


def _opened(content: bytes) -> tuple[dict[str, Any], bytes, bytes] | None:
    head, _, rest = content.partition(b"\n")
    try:
        about = json.loads(head)
        whole = hashlib.sha256(rest).hexdigest() == about["digest"] and about["version"] == VERSION
    except (ValueError, LookupError, TypeError):
        return None
    return (about, rest[: about["project"]], rest[about["project"] :]) if whole else None


def _run(sandbox: Client, command: str, given: bytes) -> ExecResult:
    """Runs a command. Large input is sent in pieces: it would not fit one message."""
    if len(given) <= AT_ONCE:
        return sandbox.exec(command, env={"LC_ALL": "C"}, input=given, max_output=MOST)
    with sandbox.spawn(command, env={"LC_ALL": "C"}) as process:
        # In a thread: a command that waits for a reader of its output does not read its input.
        writing = Thread(target=_write, args=(process, given), name="sandbox-checkpoints", daemon=True)
        writing.start()
        output = Output(MOST)
        for chunk in process.chunks():
            output.add(chunk)
        writing.join()
        assert process.result is not None
        return output.into(process.result)


def _write(process: RemoteProcess, given: bytes) -> None:
    try:
        process.write(given)
        process.close_stdin()
    except (BrokenPipeError, SandboxError):
        pass  # who reads its output learns why


def _said(sandbox: Client, command: str, given: bytes = b"") -> bytes:
    result = _run(sandbox, command, given)
    if result.truncated:
        raise SandboxError("the sandbox has more than {most} MB to save", most=MOST >> 20)
    if result.exit_code not in (0, 1):  # 1: a file changed while it was read
        raise SandboxError("the files cannot be saved: {problem}", problem=result.stderr[-200:] or result.exit_code)
    return result.stdout_bytes
