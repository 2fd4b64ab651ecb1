"""What is asked, the answers there are, and the states of a question.

Everything about a subject but the path of a covered file comes from a tenant. It is bounded here, and escaped wherever
a person reads it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from sandbox.errors import Message
from sandbox.info import Ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

ONCE, SANDBOX, ALWAYS, DENY = "once", "sandbox", "always", "deny"
WAITING, ALLOWED, DENIED, EXPIRED, WITHDRAWN = "waiting", "allowed", "denied", "expired", "withdrawn"

# A question waits, and then ends once and for good. What ends it -> how it ended.
ENDS = {
    ONCE: ALLOWED,  # this connection, request or open
    SANDBOX: ALLOWED,  # this host and port, or this file, until the sandbox ends
    ALWAYS: ALLOWED,  # the same, and written to the user's config
    DENY: DENIED,
    "time": EXPIRED,  # nobody answered in time
    "close": WITHDRAWN,  # the sandbox ended
}

LONGEST = 200  # characters of a path or a program's name


class Requester:
    """The program that asked, as far as it is known. The tenant chooses `program` and `exe`."""

    __slots__ = ("program", "exe", "pid")

    def __init__(self, program: str = "", exe: str = "", pid: int | None = None) -> None:
        self.program = bounded(program)
        self.exe = bounded(exe)
        self.pid = pid  # in the sandbox's own namespace


class Subject(ABC):
    """What a question is about.

    `key`: each has one question at a time. `grant`: what "for this sandbox" allows. `exact`: what "once" allows.
    """

    kind = ""
    answers: tuple[str, ...] = (ONCE, SANDBOX, DENY)

    def __init__(self, requester: Requester | None) -> None:
        self.requester = requester or Requester()

    @property
    @abstractmethod
    def key(self) -> Hashable: ...

    @property
    @abstractmethod
    def grant(self) -> Hashable: ...

    @property
    def exact(self) -> Hashable:
        return self.grant

    @property
    @abstractmethod
    def target(self) -> str:
        """How the record names it."""

    @abstractmethod
    def details(self) -> dict[str, object]:
        """Its own fields of an `Ask`."""

    @property
    @abstractmethod
    def text(self) -> Message:
        """The question for a person, with nothing in it that could control a terminal."""

    @property
    def who(self) -> str | Message:
        """The requester for a person. In quotes, so that its name is not mistaken for our own text."""
        known = self.requester
        if not known.program:
            return Message("A program")
        # Without spaces: a file's name could continue with words like ours, and name another host.
        exe = plain(known.exe).replace(" ", "\\x20")
        inside = f" ({exe})" if known.exe and known.exe.rpartition("/")[2] != known.program else ""
        return f"'{plain(known.program)}'{inside}"


class HostSubject(Subject):
    """A connection to a host, or one HTTP request to it. `host` is canonical."""

    kind = "host"
    answers = (ONCE, SANDBOX, ALWAYS, DENY)

    def __init__(
        self, host: str, port: int, method: str = "", path: str = "", requester: Requester | None = None
    ) -> None:
        super().__init__(requester)
        self.host = host
        self.port = port
        self.method = bounded(method)
        self.path = bounded(path)
        self._whole = method, path  # two long paths that begin alike are not the same request

    @property
    def key(self) -> Hashable:
        return self.kind, self.host

    @property
    def grant(self) -> Hashable:
        return self.kind, self.host, self.port

    @property
    def exact(self) -> Hashable:
        return self.kind, self.host, self.port, self._whole

    @property
    def entry(self) -> str:
        """The entry of `network.allowed_hosts` that allows this and nothing else."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        return self.entry

    def details(self) -> dict[str, object]:
        return {"host": self.host, "port": self.port, "method": self.method, "path": self.path}

    @property
    def text(self) -> Message:
        if not self.method:
            return Message("{program} wants to connect to {host}", program=self.who, host=plain(self.entry))
        return Message(
            "{program} wants to connect to {host}: {method} {path}",
            program=self.who,
            host=plain(self.entry),
            method=plain(self.method),
            path=plain(self.path),
        )


class FileSubject(Subject):
    """A covered file or directory. `operation` is what was tried: read, write or list.

    There is no "always": a pattern in the user's config would allow the same name in every project.
    """

    kind = "file"

    def __init__(self, path: str, operation: str, requester: Requester | None = None) -> None:
        super().__init__(requester)
        self.path = path
        self.operation = operation

    @property
    def writes(self) -> bool:
        return self.operation == "write"

    @property
    def key(self) -> Hashable:
        return self.kind, self.path

    @property
    def grant(self) -> Hashable:
        return self.kind, self.path, self.writes

    @property
    def target(self) -> str:
        return self.path

    def details(self) -> dict[str, object]:
        return {"path": self.path, "operation": self.operation}

    @property
    def text(self) -> Message:
        path = "".join(sign if sign.isprintable() else plain(sign) for sign in self.path)  # the host's name for it
        if self.writes:
            return Message("{program} wants to change the blocked file {path}", program=self.who, path=path)
        return Message("{program} wants to read the blocked file {path}", program=self.who, path=path)


class Question:
    """One question, from the moment it is asked. Only `Asks` changes it."""

    def __init__(self, id: int, subject: Subject, sandbox: str, seconds: float, now: float) -> None:
        self.id = id
        self.subject = subject
        self.sandbox = sandbox
        self.asked = time.time()
        self.seconds = seconds
        self.until = now + seconds
        self.state = WAITING
        self.answer = ""
        self.by = ""
        self.said = ""  # why the owner's own code denied it, for the tenant to read

    def plain(self) -> dict[str, object]:
        """For events and JSON-RPC."""
        requester = self.subject.requester
        return {
            "id": self.id,
            "sandbox": self.sandbox,
            "kind": self.subject.kind,
            **self.subject.details(),
            "program": requester.program,
            "exe": requester.exe,
            "pid": requester.pid,
            "text": str(self.subject.text),
            "answers": list(self.subject.answers),
            "asked": self.asked,
            "timeout": self.seconds,
            "state": self.state,
            "answer": self.answer,
            "by": self.by,
        }

    @property
    def ask(self) -> Ask:
        """For the owner's own code."""
        return Ask(**self.plain())


def bounded(text: str) -> str:
    """At most LONGEST characters."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def plain(text: str) -> str:
    """A tenant's text, for a person to read: ASCII, no control characters, no quotes that could end ours."""
    escaped = text.encode("unicode_escape", "surrogatepass").decode("ascii")
    return escaped.replace("'", "\\'")
