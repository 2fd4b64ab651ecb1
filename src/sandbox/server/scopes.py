"""What a token may do: verbs, and on which sandboxes.

Every route names its verb (`opt={"verb": …}`). A route without one needs `host`, so a new route stays closed to
narrower tokens until somebody chooses its verb.
"""

from __future__ import annotations

import msgspec

from sandbox.errors import InvalidArgument

VERBS = {
    "read": "see sandboxes, their state, processes, ports, policy and questions",
    "create": "create sandboxes that may do at most what the server's owner allows any sandbox",
    "exec": "run commands, open terminals, reach ports inside",
    "files": "read and change files inside, and see what changed",
    "apply": "apply changes to the host's files, or discard them",
    "network": "tighten a sandbox's network policy",
    "answer": "answer what sandboxes ask, once or for that sandbox",
    "kill": "start, stop, pause and end sandboxes",
    "audit": "read the record",
    "sign": "ask for signatures",
    "approve": "approve and reject signatures that others asked for; never in one token with `sign`",
    "panic": "pull the kill switch",
    "host": "what the command line may: widen policy, name paths of the host, run without walls",
}
OWNER = frozenset(VERBS) - {"sign"}  # for a person, who approves what programs ask for
ALL = "*"
LEASE = "lease"  # the surface of a token that may create one sandbox and then use that one
# Verbs that reach no further in a sandbox without walls. With any other, whoever uses it is on the host itself.
SAME_WITHOUT_WALLS = ("read", "kill", "audit", "answer", "network")
NOT_PER_SANDBOX = ("create", "host", "panic", "sign", "approve")  # these reach beyond any one sandbox


class Access(msgspec.Struct, frozen=True):
    """Who sent a request: the token's name, verbs, sandboxes (ids or names; empty means all of them) and id.

    With a `surface`, only routes of that surface accept it (`opt={"surface": …}`). With a `holder`, it is valid only
    over TLS with the client certificate of that digest.
    """

    name: str
    scopes: frozenset[str]
    sandboxes: frozenset[str] = frozenset()
    token: str = ""
    surface: str = ""
    holder: str = ""

    def may(self, verb: str) -> bool:
        if verb == "sign" and "approve" in self.scopes:
            return False  # whoever asks for signatures must not approve them
        return verb in self.scopes and not (self.sandboxes and verb in NOT_PER_SANDBOX)

    def reaches(self, *names: str) -> bool:
        """Whether it covers a sandbox with any of these ids or names. An empty name (an unnamed one) never matches."""
        everything = not self.sandboxes and self.surface != LEASE  # a lease covers none until its sandbox exists
        return everything or any(one in self.sandboxes for one in names if one)


def needed(verb: str, *, walled: bool) -> str:
    """The scope that it takes to do `verb` in a sandbox: without walls (engine `none`) that is `host`."""
    return verb if walled or verb in SAME_WITHOUT_WALLS else "host"


def read(words: list[str]) -> frozenset[str]:
    """The verbs that `--scope` names. Raises InvalidArgument."""
    found: set[str] = set()
    for word in (part.strip() for text in words for part in text.split(",")):
        if word == ALL:
            found.update(OWNER)
        elif word in VERBS:
            found.add(word)
        else:
            raise InvalidArgument(
                "unknown scope {word!r}; there are {known} and {all!r}", word=word, known=", ".join(VERBS), all=ALL
            )
    if {"sign", "approve"} <= found:
        raise InvalidArgument("a token that may approve signatures may not ask for them: make two")
    if not found:
        raise InvalidArgument("a token needs a scope; there are {known}", known=", ".join(VERBS))
    return frozenset(found)
