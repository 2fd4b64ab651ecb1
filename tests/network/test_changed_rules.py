"""Rules that change count for requests on connections that are older than they are."""

from __future__ import annotations

import http.client
from collections.abc import Callable

import pytest

from tests.network.lab import Lab

MakeLab = Callable[..., Lab]
API = "api.example.com"


@pytest.mark.parametrize("change", [{"allowed_hosts": ["other.example.com"]}, {"denied_hosts": [API]}])
def test_a_host_that_is_taken_away_is_out_of_reach_on_open_connections(
    make_lab: MakeLab, change: dict[str, list[str]]
) -> None:
    lab = make_lab({"intercept": True})
    connection = http.client.HTTPConnection(lab.host, 443)
    connection.sock = lab.tls_socket()
    statuses = []
    for _ in range(2):
        connection.request("GET", "/")
        answer = connection.getresponse()
        body = answer.read()
        statuses.append(answer.status)
        lab.update({"intercept": True, **change})
    connection.close()
    assert statuses == [200, 403]
    assert API.encode() in body
    assert len(lab.origins[API].seen) == 1
