"""Suites of frameworks are collected where the framework is: in the environment of `make integrations`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

NEEDS = {
    "test_inspect.py": ["inspect_ai"],
    "test_deepagents.py": ["deepagents", "langchain_tests"],
    "test_deepagents_06.py": ["deepagents"],
    "test_pydantic_ai.py": ["pydantic_ai"],
    "test_smolagents.py": ["smolagents"],
    "test_jupyter.py": ["jupyter_client", "nbclient"],
    "test_jupyter_suites.py": ["jupyter_client", "nbclient"],
    "test_mcp_server.py": ["mcp"],
    "test_mcp_clients.py": ["mcp"],
    "test_mcp_conformance.py": ["mcp"],
    "test_mcp_questions.py": ["mcp"],
    "test_mcp_resources.py": ["mcp"],
    "test_mcp_sessions.py": ["mcp"],
    "test_harbor.py": ["harbor"],
    "test_claude_agent_sdk.py": ["claude_agent_sdk"],
    "test_openai_agents.py": ["agents"],
    "test_openai_examples.py": ["agents"],
    "test_e2b.py": ["e2b", "e2b_code_interpreter"],
    "test_e2b_http.py": ["litestar"],
    "test_e2b_js.py": ["litestar"],
}
collect_ignore = [name for name, needs in NEEDS.items() if not all(find_spec(one) for one in needs)]


def pytest_configure(config: pytest.Config) -> None:
    if file := os.environ.get("SANDBOX_INTEGRATIONS_RESULTS"):
        from tests.integrations.results import Results

        config.pluginmanager.register(Results(Path(file)))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
