"""Commands with a terminal."""

from __future__ import annotations

import os

from tests.guest.driver import Command, Place


def read_until(fd: int, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        data += os.read(fd, 4096)
    return data


def terminal(place: Place, *argv: str) -> tuple[Command, int]:
    command = place.start(*argv, pty={"rows": 12, "cols": 34})
    assert command.started()["fds"] == 1
    return command, command.line.fds.pop()


def test_the_command_has_a_terminal_of_the_given_size_on_all_three(place: Place) -> None:
    command, master = terminal(place, "sh", "-c", "tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all")
    out = read_until(master, b"all\r\n")
    assert b"/dev/pts/0\r\n12 34\r\nall\r\n" in out
    assert command.wait().code == 0
    os.close(master)


def test_a_resize_signals_the_command(place: Place) -> None:
    command, master = terminal(
        place, "bash", "-c", "trap 'stty size; exit 3' WINCH; echo up; while :; do sleep 0.01; done"
    )
    read_until(master, b"up")
    command.line.send({"t": "resize", "rows": 50, "cols": 132})
    read_until(master, b"50 132")
    assert command.wait().code == 3
    os.close(master)


def test_control_c_and_job_control_work(place: Place) -> None:
    command, master = terminal(place, "bash", "--norc", "-i")
    os.write(master, b"""sh -c 'echo g""o; exec sleep 1000'\n""")
    read_until(master, b"go\r\n")
    os.write(master, b"\x03")
    read_until(master, b"^C")
    os.write(master, b"echo st$?\n")
    read_until(master, b"st130\r\n")
    os.write(master, b"sleep 1000 &\n")
    os.write(master, b"jobs\n")
    read_until(master, b"Running")
    os.write(master, b"kill %1\nexit 5\n")
    assert command.wait().code == 5
    os.close(master)


def test_closing_the_line_ends_what_runs_in_the_terminal(place: Place) -> None:
    command, master = terminal(place, "sh", "-c", "echo up; sleep 1000")
    read_until(master, b"up")
    command.line.close()
    try:
        while os.read(master, 4096):
            pass
    except OSError:
        pass  # EIO: nobody is at the other end any more
    os.close(master)
