"""One token of a credential file, as the gate holds it."""

from __future__ import annotations

from sandbox.errors import Message
from sandbox.network.secrets.sources import unusable
from sandbox.policy.hosts import HostSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_PLACEHOLDERS = 32  # of one token over time: a JWT's placeholder changes with its claims
MISSING = Message("it is not in your credential file")


class CredentialToken:
    """Where the token may go, its current value (None when there is none; `why` says why), and every placeholder it has
    had. New copies of the file have the last one; all of them stand for the current value."""

    def __init__(
        self, name: str, label: str, kind: str, hosts: Sequence[str], places: Sequence[str], setting: str
    ) -> None:
        self.name = name  # in messages
        self.label = label
        self.kind = kind
        self.hosts = HostSet(list(hosts), setting, near_secret=True)
        self.places = frozenset(places)
        self.setting = setting
        self.value: bytes | None = None
        self.why: str | None = MISSING
        self.placeholders: list[bytes] = []

    @property
    def endpoint_only(self) -> bool:
        """Whether it is sent only in requests for new tokens."""
        return self.kind == "refresh"

    @property
    def placeholder(self) -> bytes:
        """The placeholder in new copies of the file."""
        return self.placeholders[-1]

    def has(self, value: str, key: bytes) -> None:
        """Sets its value."""
        from sandbox.network.credentials.token_shapes import shaped

        placeholder = shaped(value, key, self.label).encode()
        if placeholder not in self.placeholders:
            self.placeholders = [*self.placeholders, placeholder][-MOST_PLACEHOLDERS:]
        elif self.placeholders[-1] != placeholder:
            self.placeholders = [*(one for one in self.placeholders if one != placeholder), placeholder]
        self.why = unusable(value)
        self.value = None if self.why else value.encode()

    def gone(self) -> None:
        """Notes that it no longer has a value."""
        self.value, self.why = None, MISSING

    def __repr__(self) -> str:
        return f"Token({self.name!r})"
