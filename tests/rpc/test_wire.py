"""Lines, however they are cut on their way."""

from __future__ import annotations

import json
import os
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.rpc.lines import NoRoom, TooLong, Writer, lines


def received(pieces: list[bytes], limit: int) -> list[bytes | None]:
    """What comes out when `pieces` are written one after the other; None stands for a line over the limit."""
    source, sink = os.pipe()

    def write() -> None:
        for piece in pieces:
            if piece:
                os.write(sink, piece)
        os.close(sink)

    writer = Thread(target=write)
    writer.start()
    try:
        return [None if isinstance(line, TooLong | NoRoom) else bytes(line) for line in lines(source, limit)]
    finally:
        writer.join()
        os.close(source)


@given(st.lists(st.binary(max_size=60), max_size=12), st.integers(1, 80))
def test_every_line_comes_whole_and_none_over_the_limit(pieces: list[bytes], limit: int) -> None:
    *ended, last = b"".join(pieces).split(b"\n")
    wanted = [*ended, last] if last else ended
    assert received(pieces, limit) == [line if len(line) <= limit else None for line in wanted]


@given(st.binary(max_size=3000), st.integers() | st.text(max_size=20))
def test_content_that_is_encoded_piece_by_piece_is_one_valid_answer(content: bytes, id: int | str) -> None:
    from base64 import b64decode

    source, sink = os.pipe()
    Writer(sink).send_content(id, content, {"size": len(content)})
    os.close(sink)
    with os.fdopen(source, "rb") as file:
        answer = json.loads(file.read())
    assert (answer["id"], answer["result"]["size"]) == (id, len(content))
    assert b64decode(answer["result"]["content"]) == content


def test_nothing_happens_when_nobody_reads_any_more() -> None:
    source, sink = os.pipe()
    os.close(source)
    writer = Writer(sink)
    writer.send({"a": 1})
    assert writer.broken and writer.hung_up()
    os.close(sink)


def test_a_late_answer_never_reaches_the_next_owner_of_the_descriptor() -> None:
    read, write = os.pipe()
    other_read, other_write = os.pipe()
    writer = Writer(write)
    writer.close()
    os.dup2(other_write, write)  # closed, and the number is at once the next connection's
    writer.send({"id": 1, "result": "what the other client asked"})
    os.set_blocking(other_read, False)
    with pytest.raises(BlockingIOError):
        os.read(other_read, 100)
    for fd in {read, write, other_read, other_write}:
        os.close(fd)
