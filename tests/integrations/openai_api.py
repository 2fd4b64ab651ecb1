"""A stand-in for OpenAI's Responses API on the loopback: a script says what the model answers to what it is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any

Item = dict[str, Any]
#: What the model says to a request: items of a response's output.
Model = Callable[[Item], list[Item]]

_numbers = count(1)


def text(said: str) -> Item:
    """A message."""
    content = [{"type": "output_text", "text": said, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{next(_numbers)}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def call(name: str, **arguments: Any) -> Item:
    """A call of a function."""
    number = next(_numbers)
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


def shell(*commands: str, **limits: Any) -> Item:
    """A call of the shell tool."""
    number = next(_numbers)
    action = {"commands": list(commands), **limits}
    return {
        "type": "shell_call",
        "id": f"sh_{number}",
        "call_id": f"call_{number}",
        "status": "completed",
        "action": action,
    }


def patch(text: str) -> Item:
    """A call of a sandbox's apply_patch."""
    number = next(_numbers)
    given = {"name": "apply_patch", "input": f"*** Begin Patch\n{text}*** End Patch\n"}
    return {"type": "custom_tool_call", "id": f"ct_{number}", "call_id": f"call_{number}", **given}


def outputs(request: Item) -> list[Any]:
    """What the tools gave back until now, as the model was sent it."""
    return [
        one["output"] for one in request["input"] if isinstance(one, dict) and one.get("type", "").endswith("_output")
    ]


class Api:
    """Its address, and every request that came."""

    def __init__(self, url: str, requests: list[Item]) -> None:
        self.url, self.requests = url, requests

    @property
    def outputs(self) -> list[Any]:
        """What the last request says of the tools."""
        return outputs(self.requests[-1])


@contextmanager
def api(model: Model) -> Iterator[Api]:
    """Serves it until the block ends."""
    requests: list[Item] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith("/responses"):
                self._send("application/json", b"{}")  # traces
                return
            requests.append(body)
            answer = _response(body, model(body))
            if body.get("stream"):
                self._send("text/event-stream", b"".join(_events(answer)))
            else:
                self._send("application/json", json.dumps(answer).encode())

        def _send(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Api(f"http://127.0.0.1:{server.server_address[1]}/v1", requests)
    finally:
        server.shutdown()
        server.server_close()


def _response(request: Item, output: list[Item]) -> Item:
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{next(_numbers)}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": request["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details},
    }


def _events(response: Item) -> Iterator[bytes]:
    told: list[Item] = [{"type": "response.created", "response": {**response, "output": [], "status": "in_progress"}}]
    for index, item in enumerate(response["output"]):
        told.append({"type": "response.output_item.added", "output_index": index, "item": item})
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0, "logprobs": []}
            said = item["content"][0]["text"]
            told.append({"type": "response.output_text.delta", "delta": said, **place})
        told.append({"type": "response.output_item.done", "output_index": index, "item": item})
    told.append({"type": "response.completed", "response": response})
    for number, one in enumerate(told):
        yield f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': number})}\n\n".encode()
