"""Requests the other way round: what we ask the client, and who waits for its answer."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from sandbox.errors import Denied
from sandbox.rpc.lines import Writer
from sandbox.rpc.messages import Id, Message

_PATIENCE = 30.0  # seconds


class Asking:
    """Sends our requests and sorts the answers. One that does not come is a refusal."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._lock = Lock()
        self._next = 0
        self._waiting: dict[Id, SimpleQueue[Message | None]] = {}
        self._closed = False

    def hook(self, params: dict[str, Any]) -> Any:
        """The client's answer to a hook's call. Raises Denied when there is none."""
        name = f"hook: {params['name']}"
        answers: SimpleQueue[Message | None] = SimpleQueue()
        with self._lock:
            if self._closed:
                raise Denied(name, "the client that provides the hook has disconnected")
            self._next += 1
            id = f"hook-{self._next}"
            self._waiting[id] = answers
        self._writer.send({"jsonrpc": "2.0", "method": "hook", "params": params, "id": id})
        try:
            answer = answers.get(timeout=_PATIENCE)
        except Empty:
            raise Denied(name, "the client did not answer within {patience:g} s", patience=_PATIENCE) from None
        finally:
            with self._lock:
                self._waiting.pop(id, None)
        if answer is None or answer.error:
            raise Denied(name, "the client's hook failed")
        return answer.result

    @property
    def waiting(self) -> bool:
        """Whether a question of ours is unanswered."""
        return bool(self._waiting)

    def answered(self, message: Message) -> None:
        """Hands an answer to whoever waits for it; an answer to nothing we asked is dropped."""
        with self._lock:
            answers = self._waiting.get(message.id) if isinstance(message.id, str) else None
        if answers is not None:
            answers.put(message)

    def close(self) -> None:
        """The client is gone: everybody who waits hears so."""
        with self._lock:
            self._closed = True
            for answers in self._waiting.values():
                answers.put(None)
