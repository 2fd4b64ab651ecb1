"""Steps of continuous integration that `sandbox init` proposes mean the command, whatever is in it."""

from __future__ import annotations

import ast

import pytest
import yaml

from sandbox.project_scan.ci import SERVICES, Service

COMMANDS = (
    "pip install agent-sandbox",
    "sandbox run -- npm run test:unit",
    "sandbox run -- sh -c 'echo \"a: b\" # no comment'",
    "sandbox run -- sh -c 'printf \"%s\\\\n\" {a} [b] *c &d'",
    "sandbox run -- pytest -k 'not slow' # rest",
    "'quoted' first",
    "key: value",
    "true",
    "- dash",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("service", SERVICES, ids=lambda one: one.name)
def test_the_service_reads_the_command_that_was_meant(service: Service, command: str) -> None:
    step = service.step_of(command)
    if service.name == "Jenkins":
        assert step.startswith("sh '") and ast.literal_eval(step.removeprefix("sh ")) == command  # as Groovy reads it
        return
    (read,) = yaml.safe_load(step)
    assert (next(iter(read.values())) if isinstance(read, dict) else read) == command


def test_an_ordinary_command_is_not_quoted() -> None:
    assert SERVICES[0].step_of("pip install agent-sandbox") == "- run: pip install agent-sandbox"
