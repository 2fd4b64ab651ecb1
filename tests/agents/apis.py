"""What the models of the mock answer: first a call of a tool that writes a file, then, with its result, a sentence."""

from __future__ import annotations

import json
from typing import Any

SAID = "The file is written, as you asked."
COPILOT_MODEL = "claude-sonnet-4.5"
HEADERS = [("Content-Type", "text/event-stream")]
JSON = [("Content-Type", "application/json")]


def events(*pieces: dict[str, Any], named: bool = True, end: str = "") -> bytes:
    lines = [
        (f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one, separators=(',', ':'))}\n\n"
        for one in pieces
    ]
    return ("".join(lines) + end).encode()


def anthropic(tool: str, arguments: dict[str, Any]) -> Any:
    """`POST /v1/messages`."""

    def answer(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        if not target.startswith("/v1/messages") or "count_tokens" in target:
            return 200, JSON, b"{}"
        asked = json.loads(body)
        has_tool = any(one.get("name") == tool for one in asked.get("tools", []))
        done = b"tool_result" in body
        if has_tool and not done:
            block = {"type": "tool_use", "id": "toolu_01", "name": tool, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            reason = "tool_use"
        else:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": SAID}
            reason = "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": asked.get("model", "m"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        if not asked.get("stream"):
            whole = {**block, **({"input": arguments} if reason == "tool_use" else {"text": SAID})}
            return 200, JSON, json.dumps({**message, "content": [whole], "stop_reason": reason}).encode()
        return (
            200,
            HEADERS,
            events(
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": reason, "stop_sequence": None},
                    "usage": {"output_tokens": 1},
                },
                {"type": "message_stop"},
            ),
        )

    return answer


def responses(tool: str, arguments: dict[str, Any]) -> Any:
    """`POST /v1/responses`, as codex speaks it."""

    def answer(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        if method != "POST" or not target.endswith("/responses"):
            return 404, JSON, b'{"error": {"message": "not here"}}'
        if b"function_call_output" in body:
            item: dict[str, Any] = {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "content": [{"type": "output_text", "text": SAID}],
            }
        else:
            item = {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": tool,
                "arguments": json.dumps(arguments),
            }
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "total_tokens": 2}
        whole = {"id": "resp_1", "status": "completed", "output": [item], "usage": usage}
        return (
            200,
            HEADERS,
            events(
                {"type": "response.created", "response": {"id": "resp_1"}},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": whole},
            ),
        )

    return answer


def chat(tool: str | None, arguments: dict[str, Any], said: str = SAID) -> Any:
    """`POST …/chat/completions`. Without a tool, the text alone."""

    def answer(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        if method != "POST" or not target.endswith("/chat/completions"):
            return 200, JSON, json.dumps({"object": "list", "data": []}).encode()
        asked = json.loads(body)
        done = any(one.get("role") == "tool" for one in asked.get("messages", []))
        delta: dict[str, Any] = {"role": "assistant", "content": said}
        reason = "stop"
        if tool is not None and not done and asked.get("tools"):
            function = {"name": tool, "arguments": json.dumps(arguments)}
            delta = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}],
            }
            reason = "tool_calls"
        head = {"id": "chatcmpl-1", "created": 1, "model": asked.get("model", "m")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not asked.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": reason}
            return (
                200,
                JSON,
                json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode(),
            )
        first = {
            **head,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
        last = {
            **head,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
            "usage": usage,
        }
        return 200, HEADERS, events(first, last, named=False, end="data: [DONE]\n\n")

    return answer


def copilot(tool: str, arguments: dict[str, Any]) -> Any:
    """GitHub's account, the models of its subscription, and `POST /chat/completions`."""
    account = {
        "login": "person", "copilot_plan": "individual", "chat_enabled": True, "cli_enabled": True,
        "access_type_sku": "monthly_subscriber", "organization_list": [], "quota_snapshots": {},
        "endpoints": {"api": "https://api.githubcopilot.com"},
    }  # fmt: skip
    limits = {"max_context_window_tokens": 128000, "max_output_tokens": 16384, "max_prompt_tokens": 128000}
    model = {
        "id": COPILOT_MODEL, "name": COPILOT_MODEL, "object": "model", "vendor": "x", "version": COPILOT_MODEL,
        "model_picker_enabled": True, "preview": False, "policy": {"state": "enabled", "terms": ""},
        "supported_endpoints": ["/chat/completions"], "billing": {"is_premium": False, "multiplier": 0},
        "capabilities": {
            "type": "chat", "family": COPILOT_MODEL, "object": "model_capabilities", "tokenizer": "o200k_base",
            "limits": limits, "supports": {"streaming": True, "tool_calls": True, "parallel_tool_calls": True},
        },
    }  # fmt: skip
    talk = chat(tool, arguments)

    def answer(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        if target.endswith("/chat/completions"):
            return talk(method, target, headers, body)
        if target.startswith("/copilot_internal/user"):
            return 200, JSON, json.dumps(account).encode()
        if target.partition("?")[0] == "/models":
            return 200, JSON, json.dumps({"object": "list", "data": [model]}).encode()
        return 404, JSON, b"{}"

    return answer


def factory(tool: str, arguments: dict[str, Any]) -> Any:
    """Factory's account, and Anthropic's models behind it."""
    account = {"userId": "user_1", "orgId": "org_1"}
    talk = anthropic(tool, arguments)

    def answer(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        if target.startswith("/api/llm/a/"):
            return talk(method, target.removeprefix("/api/llm/a"), headers, body)
        if target == "/api/feature-flags":
            return 200, JSON, json.dumps({**account, "flags": {}, "configs": {}}).encode()
        return 200, JSON, json.dumps(account if target == "/api/cli/whoami" else {}).encode()

    return answer


def gemini(tool: str, arguments: dict[str, Any]) -> Any:
    """`POST …:streamGenerateContent`."""

    def answer(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        if "enerateContent" not in target:
            return 200, JSON, json.dumps({"totalTokens": 1}).encode()
        asked = json.loads(body)
        part: dict[str, Any] = {"text": SAID}
        done = any("functionResponse" in one for turn in asked.get("contents", []) for one in turn.get("parts", []))
        if "streamGenerateContent" in target and not done and asked.get("tools"):
            part = {"functionCall": {"name": tool, "args": arguments}}
        elif (
            asked.get("generationConfig", {}).get("responseJsonSchema")
            or asked.get("generationConfig", {}).get("responseMimeType") == "application/json"
        ):
            part = {"text": json.dumps({"reasoning": "", "complexity_reasoning": "", "complexity_score": 1})}
        whole = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        }
        if "streamGenerateContent" in target:
            return 200, HEADERS, events(whole, named=False)
        return 200, JSON, json.dumps(whole).encode()

    return answer
