"""Guards a WebSocket's messages: replaces or refuses placeholders on the way out, replaces values on the way in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import Message
from sandbox.network.secrets.fill_body import written_in_message
from sandbox.network.secrets.placeholder_search import Finder, Replacer, word_in
from sandbox.network.secrets.scrubbing import Scrubber

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.errors import Denied
    from sandbox.network.http.message import Request
    from sandbox.network.secrets.store import Secrets


def message_guard(secrets: Secrets, request: Request) -> MessageGuard:
    """The guard for the messages of a WebSocket that `request` opened."""
    return MessageGuard(secrets, request, *secrets.words_for(request))


class MessageGuard:
    """Makes a function for each message of a WebSocket, which maps its pieces to what may be passed on."""

    def __init__(
        self, secrets: Secrets, request: Request, forbidden: list[bytes], words: Mapping[bytes, bytes]
    ) -> None:
        self._secrets, self._host, self._uses, self._forbidden = secrets, request.host, request.uses, forbidden
        written = {word: written_in_message(value) for word, value in words.items()}
        self._fill = {word: value for word, value in written.items() if value is not None}
        self._unwritable = [word for word, value in written.items() if value is None]

    def outgoing(self) -> Callable[[bytes, bool], bytes]:
        """For one message to upstream. The function raises Denied."""
        finder, change = Finder([*self._forbidden, *self._unwritable]), self._replacement()
        look = self._secrets.looking()
        held = b""

        def pass_on(data: bytes, last: bool) -> bytes:
            nonlocal held
            look(data)
            found = finder.feed(data)
            if found is not None:
                raise self._refused(found)
            held += data
            ready = len(held) if last else max(0, len(held) - finder.pending())
            while 0 < ready < len(held) and held[ready] & 0xC0 == 0x80:
                ready -= 1  # never within a character: text is sent as text
            data, held = held[:ready], held[ready:]
            return change(data, last)

        return pass_on

    def incoming(self) -> Callable[[bytes, bool], bytes]:
        """For one message to the tenant."""
        if not self._secrets.values:
            return lambda data, last: data
        scrubber = Scrubber(self._secrets.values, found=self._uses.taken_out)
        return lambda data, last: scrubber.feed(data) + (scrubber.flush() if last else b"")

    def refuse_in(self, payload: bytes) -> None:
        """Raises Denied for what a control frame to upstream must not contain. No value is inserted into one."""
        self._secrets.refuse_values(payload)
        found = word_in(payload, self._forbidden)
        if found is not None:
            raise self._refused(found)

    def scrubbed(self, payload: bytes) -> bytes:
        """A control frame's payload to the tenant, without values."""
        return self._secrets.values.scrubbed(payload, same_length=True, found=self._uses.taken_out)

    def _replacement(self) -> Callable[[bytes, bool], bytes]:
        if not self._fill:
            return lambda data, last: data
        replacer = Replacer(self._fill, lambda word: self._uses.put_in(self._secrets.name_of(word)))
        return lambda data, last: replacer.feed(data) + (replacer.flush() if last else b"")

    def _refused(self, word: bytes) -> Denied:
        if word in self._unwritable:
            return self._secrets.unwritable(word, Message("its value cannot go into a WebSocket message unescaped"))
        return self._secrets.refusal(word, self._host)
