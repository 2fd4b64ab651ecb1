"""`sandbox mcp --http` with the tools, resources and prompts that MCP's conformance checks call by name.

The product has none of them. What is checked is what they go through: `make_server`, `tool`, the sessions, `serve`.
"""

# No `from __future__ import annotations`: the SDK builds the tools' schemas from these annotations.
import base64
import json
import sys
from typing import Any

import mcp_types as types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage

from sandbox.aio import AsyncSandbox
from sandbox.cli.mcp import _tell_address
from sandbox.integrations.mcp_http import serve
from sandbox.integrations.mcp_server import make_server
from sandbox.integrations.mcp_sessions import SessionSandboxes
from sandbox.integrations.mcp_tools import READS, tool

PICTURE = b"\x89PNG\r\n\x1a\n"
SOUND = b"RIFF\x04\x00\x00\x00WAVE"
Asks = dict[str, Any]
DIALECT: Asks = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
DEFAULTS: Asks = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
UNTITLED = ["option1", "option2", "option3"]
ENUMS: Asks = {
    "untitledSingle": {"type": "string", "enum": UNTITLED},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": UNTITLED}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


def text(said: str) -> types.TextContent:
    return types.TextContent(type="text", text=said)


def picture() -> types.ImageContent:
    return types.ImageContent(type="image", data=base64.b64encode(PICTURE).decode(), mime_type="image/png")


def embedded(uri: str, said: str, kind: str = "text/plain") -> types.EmbeddedResource:
    inner = types.TextResourceContents(uri=uri, mime_type=kind, text=said)
    return types.EmbeddedResource(type="resource", resource=inner)


def add_contents(server: MCPServer[Any], sandboxes: SessionSandboxes) -> None:
    sound = types.AudioContent(type="audio", data=base64.b64encode(SOUND).decode(), mime_type="audio/wav")
    mixed = embedded("test://mixed-content-resource", json.dumps({"test": "data", "value": 123}), "application/json")
    contents: dict[str, list[Any]] = {
        "test_simple_text": [text("This is a simple text response for testing.")],
        "test_image_content": [picture()],
        "test_audio_content": [sound],
        "test_embedded_resource": [embedded("test://embedded-resource", "This is an embedded resource content.")],
        "test_multiple_content_types": [text("Multiple content types test:"), picture(), mixed],
    }
    for name, content in contents.items():
        add(server, sandboxes, name, content)

    @tool(server, sandboxes, READS, description="Does what the checks say.", structured_output=False)
    async def test_error_handling(context: Context[Any, Any]) -> Any:
        raise ToolError("This tool intentionally returns an error for testing")


def add(server: MCPServer[Any], sandboxes: SessionSandboxes, name: str, content: list[Any]) -> None:
    @tool(server, sandboxes, READS, name=name, description=f"Returns {name}.", structured_output=False)
    async def returned(context: Context[Any, Any]) -> Any:
        return content


def add_notices(server: MCPServer[Any], sandboxes: SessionSandboxes) -> None:
    @tool(server, sandboxes, READS, description="Does what the checks say.", structured_output=False)
    async def test_tool_with_logging(context: Context[Any, Any]) -> Any:
        for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await context.info(said)
        return [text("done")]

    @tool(server, sandboxes, READS, description="Does what the checks say.", structured_output=False)
    async def test_tool_with_progress(context: Context[Any, Any]) -> Any:
        for part in (0, 50, 100):
            await context.report_progress(part, 100, f"Completed step {part} of 100")
        return [text("done")]

    @tool(server, sandboxes, READS, description="Does what the checks say.", structured_output=False)
    async def json_schema_2020_12_tool(
        context: Context[Any, Any], name: str = "", address: dict[str, str] | None = None
    ) -> Any:
        return [text(name)]

    listed = server._tool_manager.get_tool("json_schema_2020_12_tool")
    assert listed is not None
    listed.parameters = DIALECT


def add_questions(server: MCPServer[Any], sandboxes: SessionSandboxes) -> None:
    async def ask(context: Context[Any, Any], message: str, properties: Asks) -> Any:
        asked = {"type": "object", "properties": properties, "required": []}
        got = await context.request_context.session.elicit_form(message, asked, context.request_id)
        return [text(f"User response: action={got.action}, content={json.dumps(got.content)}")]

    @tool(server, sandboxes, READS, description="Does what the checks say.", structured_output=False)
    async def test_elicitation(message: str, context: Context[Any, Any]) -> Any:
        return await ask(context, message, {"response": {"type": "string", "description": "User's response"}})

    @tool(server, sandboxes, READS, description="Does what the checks say.", structured_output=False)
    async def test_elicitation_sep1034_defaults(context: Context[Any, Any]) -> Any:
        return await ask(context, "Please review the defaults", DEFAULTS)

    @tool(server, sandboxes, READS, description="Does what the checks say.", structured_output=False)
    async def test_elicitation_sep1330_enums(context: Context[Any, Any]) -> Any:
        return await ask(context, "Please select", ENUMS)

    @tool(server, sandboxes, READS, description="Does what the checks say.", structured_output=False)
    async def test_sampling(prompt: str, context: Context[Any, Any]) -> Any:
        said = types.SamplingMessage(role="user", content=text(prompt))
        session = context.request_context.session
        got = await session.create_message([said], max_tokens=100, related_request_id=context.request_id)
        assert isinstance(got.content, types.TextContent)
        return [text(f"LLM response: {got.content.text}")]


def add_resources(server: MCPServer[Any]) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return PICTURE

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched() -> str:
        return "Watched resource content"


def add_prompts(server: MCPServer[Any]) -> None:
    @server.prompt(description="Says what the checks want.")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description="Says what the checks want.")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description="Says what the checks want.")
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
        inner = embedded(resourceUri, "Embedded resource content for testing.")
        return [UserMessage(inner), UserMessage("Please process the embedded resource above.")]

    @server.prompt(description="Says what the checks want.")
    def test_prompt_with_image() -> list[Any]:
        return [UserMessage(picture()), UserMessage("Please analyze the image above.")]


def main() -> int:
    sandboxes = SessionSandboxes(lambda questions: AsyncSandbox(hooks=questions))
    server = make_server(sandboxes)
    for adds in (add_contents, add_notices, add_questions):
        adds(server, sandboxes)
    add_resources(server)
    add_prompts(server)
    return serve(server, sandboxes, 0, 600, _tell_address)


if __name__ == "__main__":
    sys.exit(main())
