"""Continuous integration: where each service's instructions are, and how a step is written there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Service:
    """`step` is one command of a job, in the service's own notation."""

    name: str
    path: str
    step: str = "- {command}"


SERVICES = (
    Service("GitHub Actions", ".github/workflows", "- run: {command}"),
    Service("GitLab CI", ".gitlab-ci.yml"),
    Service("CircleCI", ".circleci", "- run: {command}"),
    Service("Azure Pipelines", "azure-pipelines.yml", "- script: {command}"),
    Service("Bitbucket Pipelines", "bitbucket-pipelines.yml"),
    Service("Buildkite", ".buildkite", '- command: "{command}"'),
    Service("Woodpecker", ".woodpecker.yml"),
    Service("Travis CI", ".travis.yml"),
    Service("Jenkins", "Jenkinsfile", "sh '''{command}'''"),
)
