"""`sandbox serve --pool`: sandboxes that are ready when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from sandbox import Sandbox
from tests.pool.waiting import until
from tests.server.serving import Served


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("h")
    served = Served(home, "--port", "0", "--pool", "2")
    yield served
    served.end()


def ready(served: Served) -> set[str]:
    """The ids of those that wait, as the machine's owner sees them."""
    return {one.name for one in (served.home / "vms").iterdir()} if (served.home / "vms").is_dir() else set()


def metric(served: Served, name: str) -> float:
    lines = served.http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name + " ")).split()[1])


def run(served: Served, id: str, command: str) -> Any:
    answer = served.http.post(f"/v1/sandboxes/{id}/exec", json={"command": command})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_request_without_wishes_gets_one_that_was_ready(pooled: Served) -> None:
    until(lambda: metric(pooled, "sandbox_pool_ready") == 2)
    waiting = ready(pooled)
    first, second = pooled.create(), pooled.create("named")
    assert {first, second} & waiting and first != second  # one may be under its half-minutely check just then
    assert run(pooled, "named", "pwd; echo mine > file")["exit_code"] == 0
    assert run(pooled, first, "test -e file")["exit_code"] == 1  # each has a workspace of its own
    assert metric(pooled, "sandbox_pool_handed_out_total") >= 2


def test_variables_can_be_given_to_one_that_was_ready(pooled: Served) -> None:
    until(lambda: metric(pooled, "sandbox_pool_ready") == 2)
    waiting = ready(pooled)
    id = pooled.create(environment={"set": {"WHO": "ann"}})
    assert id in waiting
    assert run(pooled, id, "echo $WHO")["stdout"] == "ann\n"
    with Sandbox.connect(pooled.address, pooled.token, {"environment": {"set": {"WHO": "bob"}}}) as sandbox:
        assert sandbox.exec("echo $WHO").stdout == "bob\n"


def test_any_other_wish_is_built_for(pooled: Served) -> None:
    until(lambda: metric(pooled, "sandbox_pool_ready") == 2)
    waiting = ready(pooled)
    assert pooled.create(limits={"timeout": "9s"}) not in waiting


def test_a_waiting_sandbox_cannot_be_seen_or_used(pooled: Served) -> None:
    until(lambda: metric(pooled, "sandbox_pool_ready") == 2)
    listed = {one["id"] for one in pooled.http.get("/v1/sandboxes").json()["sandboxes"]}
    waiting = {
        one for one in ready(pooled) - listed
        if pooled.http.post(f"/v1/sandboxes/{one}/exec", json={"command": "true"}).status_code == 404
    }  # fmt: skip
    assert len(waiting) == 2


def test_one_that_is_being_built_to_wait_is_seen_by_nobody(pooled: Served) -> None:
    seen: set[str] = set()
    over = Event()

    def look() -> None:
        with pooled.limited("read") as client:
            while not over.is_set():
                seen.update(one["id"] for one in client.get("/v1/sandboxes?status=running").json()["sandboxes"])

    before = {one["id"] for one in pooled.http.get("/v1/sandboxes").json()["sandboxes"]}
    looking = Thread(target=look)
    looking.start()
    handed_out = {pooled.create() for _ in range(12)}  # each makes room for one more, which is built
    over.set()
    looking.join()
    for id in handed_out:
        pooled.http.delete(f"/v1/sandboxes/{id}")
    assert seen - before <= handed_out


def test_a_token_that_may_only_tighten_gets_no_variables_in_one_that_was_ready(pooled: Served) -> None:
    until(lambda: metric(pooled, "sandbox_pool_ready") == 2)
    waiting = ready(pooled)
    narrow = pooled.limited("create", "exec", "read")
    made = narrow.post("/v1/sandboxes", json={"config": {"environment": {"set": {"WHO": "ann"}}}})
    assert made.json()["id"] not in waiting
    plain = narrow.post("/v1/sandboxes", json={"config": {}})
    assert plain.status_code == 201 and plain.json()["id"] in waiting


def test_nothing_is_left_when_the_server_ends(tmp_path: Path) -> None:
    served = Served(tmp_path, "--port", "0", "--pool", "2")
    until(lambda: metric(served, "sandbox_pool_ready") == 2)
    assert served.end() == 0
    from sandbox.registry.registry import entries

    assert not [one for one in entries(str(tmp_path)) if one.running]
