"""`sandbox serve --most`: a full server makes people wait in line, says how many do, and turns nobody away at once."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.rpc.errors import BUSY, Fault
from sandbox.server.capacity import Places
from sandbox.server.limits import AT_ONCE, UnderWay
from sandbox.server.refusal import Refusal
from sandbox.server.server import THREADS
from sandbox.websocket import WebSocketClient
from tests.patience import until
from tests.server.serving import Served

pytestmark = pytest.mark.walls


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Served]:
    """A server with room for one."""
    served = Served(tmp_path, "--port", "0", "--most", "1", "--wait", "60s")
    yield served
    served.end()


def metric(served: Served, name: str) -> float:
    found = [line for line in served.http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    assert len(found) == 1, name
    return float(found[0].split()[1])


def test_a_request_beyond_the_limit_waits_and_gets_the_place_that_is_freed(full: Served) -> None:
    first = full.create()
    waiting = full.start("/v1/sandboxes", {"config": {}})
    until(lambda: metric(full, "sandbox_queue_length") == 1)
    assert metric(full, "sandbox_own") == 1
    assert not waiting.done()
    assert full.http.delete(f"/v1/sandboxes/{first}").status_code == 200
    assert waiting.result(60).status_code == 201
    assert metric(full, "sandbox_queue_length") == 0
    assert metric(full, "sandbox_queue_refused_total") == 0
    assert metric(full, "sandbox_most") == 1


def test_a_request_that_waits_in_vain_is_asked_to_retry_later(tmp_path: Path) -> None:
    served = Served(tmp_path, "--port", "0", "--most", "1", "--wait", "1s")
    try:
        served.create()
        answer = served.http.post("/v1/sandboxes", json={"config": {}})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "busy")
        assert metric(served, "sandbox_queue_refused_total") == 1
    finally:
        served.end()


def test_places_are_handed_out_in_the_order_in_which_they_were_asked_for() -> None:
    running = [1]
    places = Places(1, lambda: running[0], patience=60)
    got: list[int] = []

    def ask(number: int) -> None:
        with places.hold():
            got.append(number)

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
        until(lambda expected=number + 1: places.waiting == expected)  # type: ignore[misc]
    running[0] = 0
    places.freed()
    for thread in threads:
        thread.join(60)
    assert got == [0, 1, 2, 3, 4]
    assert (places.waiting, places.refused) == (0, 0)


def test_one_that_is_being_started_has_its_place_already() -> None:
    places = Places(2, lambda: 0, patience=0)
    with places.hold(2), pytest.raises(Fault) as caught, places.hold():
        pass
    assert caught.value.code == BUSY
    with places.hold():  # both are free again
        pass


def test_more_than_there_will_ever_be_room_for_is_refused_at_once() -> None:
    with pytest.raises(Fault), Places(2, lambda: 0, patience=3600).hold(3):
        pass


def test_a_server_that_cannot_build_walls_is_there_but_not_ready_and_says_why_to_its_owner(tmp_path: Path) -> None:
    # Inside a sandbox no further one can be built.
    source = str(Path(__file__).resolve().parents[2] / "src")
    script = (
        "import subprocess, sys, time, urllib.request, urllib.error, os\n"
        "os.environ['SANDBOX_HOME'] = os.getcwd() + '/home'\n"
        "serve = subprocess.Popen([sys.executable, '-m', 'sandbox', 'serve', '--port', '0'], stdout=subprocess.PIPE,\n"
        "                         stderr=subprocess.PIPE, text=True)\n"
        "address = serve.stdout.readline().removeprefix('serving on ').strip()\n"
        "def status(path):\n"
        "    try: return urllib.request.urlopen(address + path).status\n"
        "    except urllib.error.HTTPError as problem: return problem.code\n"
        "print(status('/v1/health'), status('/v1/ready'))\n"
        "serve.terminate()\n"
        "print(serve.communicate()[1])\n"
    )
    (tmp_path / "script.py").write_text(script)
    # In a tree of its own our source is like any other, and a file named credentials.py is hidden.
    files = {"root": str(tmp_path), "allow_read": [sys.prefix, source], "blocked_patterns": []}
    with Sandbox({"filesystem": files}) as sandbox:
        done = sandbox.exec([sys.executable, "script.py"], env={"PYTHONPATH": source})
    told = done.stdout.splitlines()
    assert told[0] == "200 503", done
    assert "no sandbox can be built on this machine" in done.stdout and "This is already a sandbox" in done.stdout


def test_forks_over_rpc_need_room_as_well(tmp_path: Path) -> None:
    served = Served(tmp_path, "--port", "0", "--most", "2", "--wait", "1s")
    try:
        box = served.create()
        token = served.new_token("read,create", sandboxes=[])
        line = WebSocketClient(f"{served.address}/v1/sandboxes/{box}/rpc", {"Authorization": f"Bearer {token}"})

        def forked(number: int) -> dict[str, Any]:
            asked = {"jsonrpc": "2.0", "id": number, "method": "fork", "params": {"n": number}}
            line.send(json.dumps(asked).encode() + b"\n")
            said = b""
            while True:
                said += line.receive()
                for one in said.split(b"\n")[:-1]:
                    answer: dict[str, Any] = json.loads(one)
                    if answer.get("id") == number:
                        return answer

        assert forked(2)["error"]["code"] == BUSY
        assert len(forked(1)["result"]["ids"]) == 1
        assert served.http.post("/v1/sandboxes", json={"config": {}}).status_code == 429
        line.close()
    finally:
        served.end()


def test_one_token_does_not_take_every_thread_of_the_server() -> None:
    assert AT_ONCE < THREADS
    under_way = UnderWay(2)
    under_way.begin("one")
    under_way.begin("one")
    with pytest.raises(Refusal):
        under_way.begin("one")
    under_way.begin("other")
    under_way.end("one")
    under_way.begin("one")
