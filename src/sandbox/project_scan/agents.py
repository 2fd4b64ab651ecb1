"""Agents and MCP clients: the files by which each is known in a project. Agents have the names of our profiles."""

from __future__ import annotations

# Profile -> its files. AGENTS.md is read by many; codex made it.
AGENTS = {
    "claude": ("CLAUDE.md", ".claude"),
    "codex": ("AGENTS.md", ".codex"),
    "gemini": ("GEMINI.md", ".gemini"),
    "cursor-agent": (".cursorrules", ".cursor"),
    "copilot": (".github/copilot-instructions.md", ".github/hooks"),
    "opencode": ("opencode.json", "opencode.jsonc", ".opencode"),
    "aider": (".aider.conf.yml",),
    "goose": (".goosehints", ".goose"),
    "qwen": ("QWEN.md", ".qwen"),
    "amp": (".amp",),
    "droid": (".factory",),
    "kiro": (".kiro",),
}

# The file of an MCP client -> the key under which it lists servers.
MCP_FILES = {
    ".mcp.json": "mcpServers",
    ".cursor/mcp.json": "mcpServers",
    ".vscode/mcp.json": "servers",
    ".gemini/settings.json": "mcpServers",
}
