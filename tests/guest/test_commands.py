"""What a command gets, and what the host learns of it."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from tests.guest.driver import WAIT, Closed, Place, launch, line_pair


def test_output_error_and_status_come_back(place: Place) -> None:
    result = place.run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (result.out, result.err, result.code) == (b"out\n", b"err\n", 7)


def test_a_signal_is_distinguished_from_a_status(place: Place) -> None:
    assert place.run("sh", "-c", "kill -TERM $$").exit["signal"] == signal.SIGTERM


def test_stdin_is_the_given_descriptor(place: Place) -> None:
    assert place.run("cat", stdin=b"\x00\xffhello").out == b"\x00\xffhello"


def test_environment_directory_and_umask_are_as_asked_and_nothing_more(place: Place) -> None:
    result = place.run("/bin/sh", "-c", "/usr/bin/env; pwd; umask", env=[b"A=\xff", b"B="], cwd=b"/tmp", umask=0o077)
    lines = result.out.splitlines()
    assert b"A=\xff" in lines and b"B=" in lines
    assert lines[-2:] == [b"/tmp", b"0077"]
    assert {line.split(b"=")[0] for line in lines[:-2]} <= {b"A", b"B", b"PWD", b"_", b"OLDPWD", b"SHLVL"}


def test_a_bare_name_is_found_on_the_commands_own_path(place: Place) -> None:
    place.run("sh", "-c", "printf '#!/bin/sh\necho mine' > /tmp/tool; chmod +x /tmp/tool")
    assert place.run("tool", env=[b"PATH=/nowhere:/tmp:/usr/bin:/bin"]).out == b"mine\n"


@pytest.mark.parametrize(
    ("keys", "step", "number"),
    [
        ({"argv": [b"/nowhere"]}, "exec", errno.ENOENT),
        ({"argv": [b"nowhere"]}, "exec", errno.ENOENT),
        ({"argv": [b"/etc/passwd"]}, "exec", errno.EACCES),
        ({"argv": [b""]}, "exec", errno.ENOENT),
        ({"argv": []}, "request", errno.EINVAL),
        ({"argv": [b"a\0b"]}, "request", errno.EINVAL),
        ({"argv": [1]}, "request", errno.EINVAL),
        ({"argv": [b"true", b"x" * 200_000]}, "exec", errno.E2BIG),
        ({"cwd": b"/nowhere"}, "chdir", errno.ENOENT),
        ({"cwd": b"/etc/passwd"}, "chdir", errno.ENOTDIR),
        ({"env": [b"A=\0"]}, "request", errno.EINVAL),
        ({"umask": 0o7777}, "request", errno.EINVAL),
        ({"timeout_ms": -1}, "request", errno.EINVAL),
        ({"pty": 3}, "terminal", errno.EINVAL),
    ],
)
def test_a_command_that_cannot_run_says_at_which_step(
    place: Place, keys: dict[str, object], step: str, number: int
) -> None:
    answer = place.run("true", **keys).exit
    assert (answer["t"], answer["step"], answer["errno"]) == ("failed", step, number)
    assert place.run("true").code == 0


def test_time_and_memory_are_measured(place: Place) -> None:
    code = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\nx = b'x' * 50_000_000"
    usage = place.python(code).exit
    assert usage["user_us"] + usage["sys_us"] >= 50_000
    assert usage["wall_us"] >= 50_000
    assert usage["maxrss_kb"] >= 48_000
    assert usage["timed_out"] is False


def test_a_thousand_commands_at_once(place: Place) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # three descriptors each on this side
    commands = [place.start("true") for _ in range(min(1000, hard // 4))]
    for command in commands:
        assert command.started()["t"] == "started"
    assert {command.wait().code for command in commands} == {0}
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_commands_alive_at_once(place: Place) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    commands = [place.start("sleep", "1000") for _ in range(min(1000, hard // 4))]
    assert {command.started()["t"] for command in commands} == {"started"}
    for command in commands:
        command.line.send({"t": "cancel"})
    assert {command.wait().exit["signal"] for command in commands} == {signal.SIGKILL}
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_host_that_does_not_read_blocks_nobody_else(place: Place) -> None:
    silent = [place.start("true") for _ in range(50)]  # their lines are never read
    answers = [line_pair() for _ in range(20)]
    for _, theirs in answers:  # nor these, which are larger than a socket holds
        place.stream.send({"t": "file", "id": 1, "op": "list", "path": b"/usr/bin"}, (theirs,))
        os.close(theirs)
    assert place.run("echo", "on").out == b"on\n"
    for command in silent:
        command.started()
        command.wait()
    for line, _ in answers:
        line.close()
    assert place.run("echo", "on").out == b"on\n"


def test_descriptors_zero_to_two_and_no_other(place: Place) -> None:
    assert place.python("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))").out == b"[0, 1, 2, 3]\n"


def test_signals_start_out_as_if_nobody_had_touched_them(place: Place) -> None:
    result = place.run("cat", "/proc/self/status")
    masks = [line for line in result.out.splitlines() if line.startswith((b"SigBlk", b"SigIgn", b"SigCgt"))]
    assert {line.split()[1] for line in masks} == {b"0" * 16}


def test_every_command_leads_its_own_session(place: Place) -> None:
    pid, group, session = map(
        int, place.python("import os; print(os.getpid(), os.getpgid(0), os.getsid(0))").out.split()
    )
    assert pid == group == session


def test_a_signal_reaches_the_whole_process_group(place: Place) -> None:
    command = place.start("sh", "-c", "sleep 1000 & echo up; wait")
    command.started()
    assert os.read(command.stdout, 3) == b"up\n"
    command.line.send({"t": "signal", "sig": signal.SIGTERM})
    # The output ends only when the process in the background is gone, too.
    assert command.wait().exit["signal"] == signal.SIGTERM


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_cancel_kills_every_process_of_the_session(place: Place, how: str) -> None:
    command = place.start("sh", "-c", "(sleep 1000; true) & sh -c 'set -m; sleep 1000 & wait' & echo up; wait")
    command.started()
    os.read(command.stdout, 3)
    if how == "cancel":
        command.line.send({"t": "cancel"})
        assert command.wait().exit["signal"] == signal.SIGKILL
    else:
        command.line.close()
        os.read(command.stdout, 1)  # the end: nobody holds the pipe any more
    assert b"sleep 1000" not in place.run("ps", "ax").out  # a dead one may not be reaped yet


def test_a_timeout_kills_the_session_and_is_reported(place: Place) -> None:
    result = place.run("sh", "-c", "sleep 1000 & sleep 1000", timeout_ms=100)
    assert result.exit["timed_out"] is True and result.exit["signal"] == signal.SIGKILL
    assert b"sleep 1000" not in place.run("ps", "ax").out  # a dead one may not be reaped yet


def test_a_background_process_outlives_its_command(place: Place) -> None:
    place.run("sh", "-c", "exec >/dev/null 2>&1; (exec sleep 1000) & exit 0")
    assert b"sleep 1000" in place.run("ps", "ax").out


def test_orphans_are_reaped(place: Place) -> None:
    place.run("sh", "-c", "for i in 1 2 3; do (sh -c 'exit 0' &) ; done")
    place.run("sh", "-c", "(setsid true &)")
    assert (
        place.python(
            "import os\n"
            "for _ in range(1000):\n"
            "    states = [open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()[0]\n"
            "        for p in os.listdir('/proc') if p.isdigit()]\n"
            "    if 'Z' not in states: break\n"
            "else: raise SystemExit(1)"
        ).code
        == 0
    )


def test_limits_hold_for_tenants(guest: Path) -> None:
    with launch(guest) as place:
        place.setup(uid=1000, gid=1000, rlimits=[[7, 33, 44], [1, 1000, 1000]])
        result = place.run("sh", "-c", "ulimit -Sn; ulimit -Hn; ulimit -c; head -c 5000 /dev/zero > /tmp/x")
        assert result.out == b"33\n44\n0\n"
        assert place.run("stat", "-c", "%s", "/tmp/x").out == b"1000\n"


def test_a_limit_that_cannot_be_had_fails_the_set_up(guest: Path) -> None:
    with launch(guest) as place:
        answer = place.setup(uid=1000, gid=1000, rlimits=[[7, 1 << 40, 1 << 40]])
        assert (answer["t"], answer["step"], answer["errno"]) == ("failed", "rlimits", errno.EPERM)
        assert place.process.wait(WAIT) != 0


def test_the_set_up_does_not_leave_descriptors_of_mounts_behind(place: Place) -> None:
    # A tenant may count the guest's descriptors but not follow one; ours: 3 null, control, proc, owner, epoll, signals
    # and, while this runs, its line and report; a moment longer its streams, if it was quick to start.
    count = "for try in $(seq 1000); do [ $(ls /proc/1/fd | wc -l) -le 10 ] && exit; done; ls -l /proc/1/fd; exit 1"
    assert place.run("sh", "-c", count).code == 0


def test_an_unknown_request_is_answered_and_harms_nothing(place: Place) -> None:
    place.stream.send({"t": "dance", "id": 5})
    assert place.stream.receive() == {"t": "failed", "id": 5, "step": "request", "errno": errno.ENOSYS}
    assert place.run("true").code == 0


def test_a_word_out_of_place_on_a_line_ends_that_command_alone(place: Place) -> None:
    other = place.start("cat")
    other.started()
    command = place.start("sleep", "1000")
    command.started()
    command.line.send_raw(b"\xff\xff\xff\xff")
    with pytest.raises(Closed):
        while True:
            command.line.receive()
    assert other.wait().code == 0
