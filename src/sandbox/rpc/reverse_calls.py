"""Requests from the server to the client: hooks, and the threads that wait for their answers."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from sandbox.errors import Denied
from sandbox.rpc.lines import Writer
from sandbox.rpc.messages import Id, Message

_TIMEOUT = 30.0  # seconds


class ReverseCalls:
    """Sends the server's requests and returns the answers. A missing answer counts as a refusal."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._lock = Lock()
        self._next = 0
        self._waiting: dict[Id, SimpleQueue[Message | None]] = {}
        self._closed = False

    def hook(self, params: dict[str, Any]) -> Any:
        """Calls a hook of the client and returns its answer. Raises Denied when there is none."""
        name = f"hook: {params['name']}"
        answers: SimpleQueue[Message | None] = SimpleQueue()
        with self._lock:
            if self._closed:
                raise Denied(name, "the client that provides the hook has disconnected")
            self._next += 1
            id = f"hook-{self._next}"
            self._waiting[id] = answers
        try:
            self._writer.send({"jsonrpc": "2.0", "method": "hook", "params": params, "id": id})
            patience = params["ask"]["timeout"] if "ask" in params else _TIMEOUT  # `on_ask` may ask a person
            answer = answers.get(timeout=patience)
        except Empty:
            raise Denied(name, "the client did not answer within {patience:g} s", patience=patience) from None
        finally:
            with self._lock:
                self._waiting.pop(id, None)
        if answer is None or answer.error:
            raise Denied(name, "the client's hook failed")
        return answer.result

    @property
    def waiting(self) -> bool:
        """Whether a hook has not answered yet."""
        return bool(self._waiting)

    def answered(self, message: Message) -> None:
        """Passes an answer to the thread that waits for it. An answer that nobody waits for is dropped."""
        with self._lock:
            answers = self._waiting.get(message.id) if isinstance(message.id, str) else None
        if answers is not None:
            answers.put(message)

    def close(self) -> None:
        """Called when the client is gone: every waiting thread gets a refusal."""
        with self._lock:
            self._closed = True
            for answers in self._waiting.values():
                answers.put(None)
