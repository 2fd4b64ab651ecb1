"""The log of a detached sandbox."""

from __future__ import annotations

import os
import select
import shutil
import stat
from pathlib import Path

from sandbox.registry.output_log import Log


def test_everything_printed_is_there_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "vm.log"
    log = Log(str(path))
    os.write(log.descriptor, b"one\ntwo\n")
    log.close()
    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_endless_output_cannot_fill_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "vm.log"
    log = Log(str(path), limit=100_000)
    for number in range(100_000):
        os.write(log.descriptor, b"line %d\n" % number)
    log.close()
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == 2 and max(sizes) <= 100_000
    assert path.read_bytes().endswith(b"line 99999\n")


def test_a_log_that_cannot_be_written_blocks_nobody_else(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    log = Log(str(directory / "vm.log"), limit=1000)
    shutil.rmtree(directory)
    os.set_blocking(log.descriptor, False)
    poll = select.poll()
    poll.register(log.descriptor, select.POLLOUT)
    for _ in range(100):
        assert poll.poll(60_000), "nobody reads what is printed"
        os.write(log.descriptor, bytes(4096))
    log.close()
