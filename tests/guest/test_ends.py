"""The end of a place is the end of everything in it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.guest.driver import WAIT, Place, assert_all_end, descendants, launch, pidfds, pidfds_of_all_in

DAEMONS = """
setsid sh -c 'echo up; exec sleep 1234' &
setsid sh -c 'trap "" TERM HUP INT; echo up; sleep 1234; true' &
(setsid setsid -f sh -c 'echo up; exec sleep 1234') &
exec sleep 4321
"""


def with_daemons(guest: Path, walls: bool) -> Place:
    place = launch(guest, walls=walls)
    assert place.setup(walls=walls, uid=1000, gid=1000)["t"] == "ready"
    command = place.start("sh", "-c", DAEMONS)
    command.started()
    heard = b""
    while heard.count(b"up") < 3:
        heard += os.read(command.stdout, 100)
    place.kept.append(command)  # its line closes with it
    return place


@pytest.mark.parametrize("walls", [True, False])
@pytest.mark.parametrize("how", ["close", "end of stream", "broken frame", "SIGKILL of the launcher"])
def test_nothing_survives(guest: Path, walls: bool, how: str) -> None:
    if how.startswith("SIGKILL") and not walls:
        pytest.skip("without walls there is no launcher, and nobody can clean up after SIGKILL")
    with with_daemons(guest, walls) as place:
        while len(descendants(place.process.pid)) < 6:
            pass  # the last of them are just being adopted by the guest
        everyone = pidfds_of_all_in(place)
        if how == "close":
            assert place.close() == 0
        elif how == "end of stream":
            place.stream.close()
        elif how == "broken frame":
            place.stream.send_raw(b"\x01\x00\x00\x00\xff")
        else:
            place.process.send_signal(signal.SIGKILL)
        assert_all_end(everyone)


def _own(guest: Path, walls: bool, out: Connection) -> None:
    place = with_daemons(guest, walls)
    keep, _ = os.pipe()  # a copy of the stream that outlives us must not keep the place alive
    pids = descendants(place.process.pid)
    holder = subprocess.Popen(["sleep", "1000"], pass_fds=(place.stream.socket.fileno(),), start_new_session=True)
    out.send((pids, holder.pid))
    os.read(keep, 1)


@pytest.mark.parametrize("walls", [True, False])
def test_killing_the_owner_with_9_ends_everything(guest: Path, walls: bool) -> None:
    ours, theirs = multiprocessing.Pipe()
    owner = multiprocessing.get_context("fork").Process(target=_own, args=(guest, walls, theirs), daemon=True)
    owner.start()
    pids, holder = ours.recv()
    everyone = pidfds(pids)
    owner.kill()
    owner.join(WAIT)
    try:
        assert_all_end(everyone)
    finally:
        os.kill(holder, signal.SIGKILL)


def test_a_fork_bomb_ends_with_the_place(guest: Path) -> None:
    with launch(guest) as place:
        place.setup(uid=1000, gid=1000, rlimits=[[6, 300, 300]] if os.geteuid() else [])
        command = place.start(
            "sh", "-c", "i=0; while [ $i -lt 200 ]; do setsid sleep 999 & i=$((i+1)); done; echo up; wait"
        )
        command.started()
        os.read(command.stdout, 3)
        everyone = pidfds_of_all_in(place)
        assert place.close() == 0
        assert_all_end(everyone)


def test_without_walls_strangers_are_left_alone(guest: Path) -> None:
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with launch(guest, walls=False) as place:
        place.setup(walls=False)
        place.close()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_tenant_cannot_end_the_place(place: Place) -> None:
    place.run("sh", "-c", "for s in TERM INT HUP QUIT KILL STOP USR1 SEGV CHLD PIPE RTMIN; do kill -$s 1; done")
    assert place.run("echo", "alive").out == b"alive\n"
