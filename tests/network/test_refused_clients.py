"""A refused host: clients give up at the first answer, and the reason is on the screen."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.network.furnished import Furnished
from tests.network.room import LOCAL, Walls, walled

__all__ = ["walled"]

REASON = "refused.test"
CLIENTS = {
    "curl": "curl -sSf https://refused.test/",
    "wget": "wget -O- https://refused.test/",
    "git": "git ls-remote https://refused.test/x.git",
    "npm": "npm view left-pad --registry=https://refused.test/",
    "node": "node -e \"fetch('https://refused.test/').then(async r => console.log(r.status, await r.text()))\"",
    "pip": "/usr/bin/python3 -m pip download --no-deps -i https://refused.test/simple six",
    "go": "GOPROXY=https://refused.test GOFLAGS=-mod=mod GONOSUMDB=* go install refused.example/x@v1.0.0",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gives_up_at_once_with_the_reason(walled: Walls, client: str) -> None:
    if shutil.which(client, path="/usr/bin:/usr/local/bin") is None and client != "pip":
        pytest.skip(f"no {client} here")
    place = walled(allowed_hosts=LOCAL)
    done = place.run(CLIENTS[client])
    if "No module named pip" in done.stderr:
        pytest.skip("no pip here")
    if client != "pip":  # which says "no matching distribution"; `sandbox run` then says why
        assert "403" in done.stdout + done.stderr
    told = [one for one in place.heard.events if REASON in one["url"]]
    assert 1 <= len(told) <= 2, told  # a browser-like client may try a second address; none tries for a minute
    assert "add 'refused.test' to network.allowed_hosts" in told[0]["reason"]
    assert place.asked == []


def test_a_client_of_http2_alone_is_answered_too(walled: Walls) -> None:
    done = walled().run("curl -sS --http2-prior-knowledge http://refused.test/")
    assert "add 'refused.test' to network.allowed_hosts" in done.stdout


def test_an_allowed_host_that_does_not_resolve_is_a_502_with_its_reason(walled: Walls) -> None:
    place = walled(allowed_hosts=["missing.test"])
    done = place.run("curl -sS -w '%{http_code}' https://missing.test/")
    assert "could not reach missing.test:443" in done.stdout and done.stdout.endswith("502")
    assert not any(one["blocked"] for one in place.heard.events)


def test_the_first_secret_can_be_added_while_the_sandbox_runs(furnished: Callable[..., Furnished]) -> None:
    place = furnished({"intercept": False})
    assert "sandbox-ca" in place.run("cat /etc/ssl/certs/ca-certificates.crt | tail -30; env | grep sandbox-ca").stdout
    secret = {"value": "sk-0123456789abcdef", "hosts": ["api.test"]}
    place.sandbox.update_network({"secrets": {"KEY": secret}})
    done = place.run("curl", "-sS", place.url())
    assert done.exit_code == 0, done.stderr
    assert place.origins["api.test"].seen


def test_the_key_of_the_authority_is_never_seen_inside(walled: Walls) -> None:
    from sandbox.config.home import authority_directory

    place = walled()
    done = place.run(f"cat {authority_directory()}/current/key.pem; ls /etc/sandbox-ca.pem")
    assert done.stdout == "/etc/sandbox-ca.pem\n"
