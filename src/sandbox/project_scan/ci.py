"""Continuous integration: where each service's instructions are, and how a step is written there."""

from __future__ import annotations

import json
from dataclasses import dataclass

import yaml

JENKINS = "sh {command}"


@dataclass(frozen=True)
class Service:
    """`step` is one command of a job, in the service's own notation."""

    name: str
    path: str
    step: str = "- {command}"

    def step_of(self, command: str) -> str:
        """The step that runs a command: words that mean something in YAML or in Groovy are quoted."""
        return self.step.format(command=_groovy(command) if self.step == JENKINS else _scalar(command))


def _scalar(text: str) -> str:
    """A text as a YAML value: as it is where YAML reads it so, else in quotes (a JSON string is one of YAML's)."""
    try:
        plain = yaml.safe_load(f"- run: {text}") == [{"run": text}] and yaml.safe_load(f"- {text}") == [text]
    except yaml.YAMLError:
        plain = False
    return text if plain else json.dumps(text)


def _groovy(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


SERVICES = (
    Service("GitHub Actions", ".github/workflows", "- run: {command}"),
    Service("GitLab CI", ".gitlab-ci.yml"),
    Service("CircleCI", ".circleci", "- run: {command}"),
    Service("Azure Pipelines", "azure-pipelines.yml", "- script: {command}"),
    Service("Bitbucket Pipelines", "bitbucket-pipelines.yml"),
    Service("Buildkite", ".buildkite", "- command: {command}"),
    Service("Woodpecker", ".woodpecker.yml"),
    Service("Travis CI", ".travis.yml"),
    Service("Jenkins", "Jenkinsfile", JENKINS),
)
