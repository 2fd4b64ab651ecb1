"""The README's table of what works with what: `python -m tests.integrations.table` writes it from results.json.

The results are those of the last `make integrations`, which runs this too. A test fails when the two disagree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "integrations" / "results.json"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "integrations" / "README.md"
BEGIN, END = "<!-- integrations: made by `make integrations` -->", "<!-- end of integrations -->"


@dataclass(frozen=True)
class Row:
    """One integration: its page, the modules that test it, the packages whose versions count, its suite's name.

    `examples`: the module that runs the framework's own programs, which then counts as its suite. `note`: what the
    suite has that is not run, and why.
    """

    name: str
    page: str
    modules: tuple[str, ...]
    packages: tuple[str, ...] = ()
    suite: str = ""
    examples: str = ""
    note: str = ""


ROWS = (
    Row(
        "MCP clients",
        "mcp.md",
        (
            "test_mcp_server",
            "test_mcp_resources",
            "test_mcp_clients",
            "test_mcp_questions",
            "test_mcp_sessions",
            "test_mcp_http_attacks",
        ),
        ("mcp",),
        "`@modelcontextprotocol/conformance` 0.1.11, its checks of servers",
    ),
    Row(
        "MCP clients, with the checks' own tools added",
        "mcp.md",
        ("test_mcp_conformance",),
        ("mcp",),
        "the same, of our server with the tools, resources and prompts that they call by name added for the test",
    ),
    Row("other people's MCP servers", "mcp.md", ("test_mcp_wrap",)),
    Row("ssh, scp, rsync, editors over ssh", "ssh.md", ("test_ssh",)),
    Row("inspect_ai", "inspect.md", ("test_inspect",), ("inspect_ai",), "`inspect_ai.util._sandbox.self_check`"),
    Row(
        "LangChain deepagents",
        "deepagents.md",
        ("test_deepagents",),
        ("deepagents", "langchain-tests"),
        "`langchain_tests` `SandboxIntegrationTests`",
    ),
    Row(
        "LangChain deepagents 0.6",
        "deepagents.md",
        ("test_deepagents_06",),
        ("deepagents 0.6",),
        "`langchain_tests` `SandboxIntegrationTests`, with the version it was written for",
    ),
    Row(
        "Pydantic AI",
        "pydantic-ai.md",
        ("test_pydantic_ai",),
        ("pydantic-ai-slim",),
        "`pydantic_ai.workspaces.conformance` `WorkspaceBackendSuite`",
    ),
    Row(
        "OpenAI Agents SDK",
        "openai-agents.md",
        ("test_openai_agents",),
        ("openai-agents",),
        "`examples/sandbox` of the OpenAI Agents SDK, with our client instead of `UnixLocalSandboxClient` and a script "
        "instead of the model",
        "test_openai_examples",
        "not run: those that need Docker, a cloud provider's account or S3",
    ),
    Row("Claude Agent SDK", "claude-agent-sdk.md", ("test_claude_agent_sdk",), ("claude-agent-sdk",)),
    Row("harbor (Terminal-Bench)", "harbor.md", ("test_harbor", "test_harbor_builder"), ("harbor",)),
    Row(
        "smolagents",
        "smolagents.md",
        ("test_smolagents",),
        ("smolagents",),
        "smolagents' tests of its executors for Docker and Modal (`CommonDockerExecutorIntegration`)",
    ),
    Row(
        "Jupyter",
        "jupyter.md",
        ("test_jupyter", "test_jupyter_suites"),
        ("jupyter_client", "nbclient"),
        "the tests of `jupyter_client` and `nbclient` that start kernels",
    ),
    Row(
        "programs written for E2B",
        "e2b.md",
        ("test_e2b", "test_e2b_js", "test_e2b_http"),
        ("e2b", "e2b-code-interpreter"),
    ),
    Row("pytest", "pytest.md", ("test_pytest_plugin",), ("pytest",)),
)


def for_readme(results: dict[str, Any]) -> str:
    """One line for each integration."""
    lines = ["| works with | tested version | its own suite | our tests |", "|---|---|---|---|"]
    for row in ROWS:
        suite, own = _count(results, row, "suite"), _count(results, row, "own")
        link = f"[{row.name}](docs/integrations/{row.page})"
        lines.append(f"| {link} | {_versions(results, row)} | {suite} | {own} |")
    return "\n".join(lines)


def for_page(results: dict[str, Any]) -> str:
    """The suites that frameworks ship, with what does not pass and why."""
    lines = ["| suite | version | passes | does not pass |", "|---|---|---|---|"]
    for row in ROWS:
        if row.suite:
            missing = _missing(results, row)
            lines.append(f"| {row.suite} | {_versions(results, row)} | {_count(results, row, 'suite')} | {missing} |")
    return "\n".join(lines)


def _count(results: dict[str, Any], row: Row, whose: str) -> str:
    counts = _counts(results, row, whose)
    return f"{sum(one['passed'] for one in counts)} of {sum(one['of'] for one in counts)}" if counts else "–"


def _counts(results: dict[str, Any], row: Row, whose: str) -> list[dict[str, Any]]:
    if row.examples and whose == "suite":
        return list(results["modules"].get(row.examples, {}).values())
    return [results["modules"][one][whose] for one in row.modules if whose in results["modules"].get(one, {})]


def _versions(results: dict[str, Any], row: Row) -> str:
    found = [(one, results["versions"].get(one)) for one in row.packages]
    if len(found) == 1:
        return found[0][1] or "–"
    return ", ".join(f"{name} {number}" for name, number in found if number) or "–"


def _missing(results: dict[str, Any], row: Row) -> str:
    """Tests by reason: one reason is often that of many."""
    reasons: dict[str, list[str]] = {}
    for count in _counts(results, row, "suite"):
        for name, reason in count["missing"].items():
            reasons.setdefault(reason, []).append(f"`{name}`")
    told = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "; ".join([*told, row.note] if row.note else told)


def within(text: str, table: str) -> str:
    """`text` with the table between its two marks."""
    before, found, rest = text.partition(BEGIN)
    _, also, after = rest.partition(END)
    assert found and also, f"no {BEGIN!r} and {END!r}"
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for file, table in ((README, for_readme(results)), (PAGE, for_page(results))):
        file.write_text(within(file.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
