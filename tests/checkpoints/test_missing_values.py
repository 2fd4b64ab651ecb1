"""What a checkpoint's configuration lacks is asked for, never guessed."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.checkpoints.origin import given_again
from sandbox.config.model import Config
from sandbox.errors import ConfigError


def saved(**config: Any) -> dict[str, Any]:
    return Config.read(config).plain()


def test_a_proxys_password_is_asked_for_again() -> None:
    network = {"upstream_proxy": "http://me:word@127.0.0.1:3128"}
    with pytest.raises(ConfigError, match="network.upstream_proxy: a checkpoint does not hold this value"):
        given_again(saved(network=network), {})
    found = given_again(saved(network=network), {}, Config.read({"network": network}))
    assert found["network"]["upstream_proxy"] == network["upstream_proxy"]


def test_the_owners_script_secrets_are_not_given_to_another_script() -> None:
    def network(script: str) -> dict[str, Any]:
        return {"network": {"policy_script": script, "policy_secrets": {"KEY": "of the owner"}}}

    same = given_again(saved(**network("mine.star")), {}, Config.read(network("mine.star")))
    assert same["network"]["policy_secrets"] == {"KEY": "of the owner"}
    with pytest.raises(ConfigError, match="network.policy_secrets.KEY"):
        given_again(saved(**network("other.star")), {}, Config.read(network("mine.star")))
