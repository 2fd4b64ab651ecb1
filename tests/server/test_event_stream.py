"""`/v1/events/stream`: what happens in all sandboxes, for as long as somebody listens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.server.serving import Served


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_a_question_that_was_denied_does_not_end_the_stream(served: Served) -> None:
    """While nobody listens, further questions are denied without a person."""
    box = served.create(network={"ask": True})
    with served.client(served.token) as client, client.stream("GET", "/v1/events/stream?watch=true") as answer:
        events = _events(answer)
        next(one for one in events if one["type"] == "seen" and one["sandbox"] == box)
        told = served.start(f"/v1/sandboxes/{box}/exec", {"command": "curl -s https://refused.example/"})
        asked = next(one for one in events if one["sandbox"] == box and one["type"] == "ask")
        assert served.http.post(f"/v1/asks/{asked['ask']['id']}", json={"answer": "deny"}).status_code == 200
        refused = next(one for one in events if one["sandbox"] == box and one["type"] == "network")
        assert refused["network"]["blocked"]
        assert "refused.example" in refused["network"]["reason"]
        next(one for one in events if one["sandbox"] == box and one["type"] == "exec")  # and goes on
        assert told.result(60).status_code == 200
