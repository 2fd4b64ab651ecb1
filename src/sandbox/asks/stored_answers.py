"""What outlives a sandbox: the numbers of questions, and hosts that are allowed always.

All sandboxes of a user share one sequence of numbers, so that `sandbox allow 7` means one question.
"""

from __future__ import annotations

import fcntl
import os

from sandbox.asks.question import HostSubject
from sandbox.config.home import home, user_config_file
from sandbox.errors import ConfigError, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.asks.question import Subject

COUNTER = "asks"
WATCHED = "asks.watched"  # each `sandbox asks` that watches every sandbox holds a shared lock on it
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def lock() -> int:
    """Returns a descriptor. Until it is closed, no other process of this user counts, looks for a watcher or changes
    the user's config. Raises OSError."""
    os.makedirs(home(), mode=0o700, exist_ok=True)
    held = os.open(os.path.join(home(), COUNTER), _FLAGS, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
    except BaseException:
        os.close(held)
        raise
    return held


def next_number() -> int:
    """A number that no other question of this user has. Raises OSError."""
    counter = lock()
    try:
        text = os.pread(counter, 32, 0).strip()
        number = int(text) + 1 if text.isdigit() else 1
        os.ftruncate(counter, os.pwrite(counter, f"{number}\n".encode(), 0))
        return number
    finally:
        os.close(counter)


def watching() -> int:
    """Returns a descriptor. Until it is closed, every sandbox of this user knows that somebody watches."""
    os.makedirs(home(), mode=0o700, exist_ok=True)
    held = os.open(os.path.join(home(), WATCHED), _FLAGS, 0o600)
    fcntl.flock(held, fcntl.LOCK_SH)
    return held


def watched() -> bool:
    """Whether somebody watches every sandbox of this user."""
    try:
        tried = os.open(os.path.join(home(), WATCHED), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        alone = lock()  # two who look at the same time would take each other for a watcher
    except OSError:
        os.close(tried)
        return False
    try:
        fcntl.flock(tried, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(tried)
        os.close(alone)


def keep(subject: Subject) -> None:
    """Adds the host and port that were asked about, and nothing wider, to the user's `network.allowed_hosts`.

    Raises SandboxError; the file is then unchanged.
    """
    if not isinstance(subject, HostSubject):
        raise SandboxError("only a host can be allowed always")
    keep_host(subject.entry)


def keep_host(entry: str) -> None:
    """Adds an entry to the user's `network.allowed_hosts`. Raises SandboxError; the file is then unchanged."""
    from sandbox.config import files
    from sandbox.config.edit import set_value, write_file
    from sandbox.config.model import Config
    from sandbox.policy.network import NetworkPolicy

    file = user_config_file()
    held_lock = lock()  # so that two answers at the same time are both kept
    try:
        text = files.read_text(file, links=True) or ""
        held = _hosts(file, text)
        if entry in held:
            return
        changed = set_value(text, ["network", "allowed_hosts"], [*held, entry], file)
        NetworkPolicy(Config.read(files.parse(file, changed).data).network)
        write_file(os.path.realpath(file), changed)
    except OSError as problem:
        raise SandboxError("{file} cannot be changed: {problem}", file=file, problem=problem.strerror) from problem
    finally:
        os.close(held_lock)


def _hosts(file: str, text: str) -> list[str]:
    from sandbox.config import files
    from sandbox.config.model import Config

    if not text.strip():
        return []
    data = files.parse(file, text).data
    try:
        return list(Config.read(data).network.allowed_hosts)
    except ConfigError:
        raise SandboxError("{file} is not in this program's own spelling; add the host by hand", file=file) from None
