"""The buffer in which the guest writes its nftables rules is never written beyond."""

from __future__ import annotations

import errno
import shutil
import subprocess
from pathlib import Path

import pytest

SIZE = 4096  # of the buffer in guest/nft.c
HEAD = 4  # of each attribute


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("gcc"):
        pytest.skip("needs gcc and its sanitizers")
    program = tmp_path_factory.mktemp("batch") / "batch"
    flags = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = Path(__file__).with_name("batch.c")
    subprocess.run(["gcc", *flags, "-Wno-unused-function", "-o", program, source], check=True)
    return program


def filled(batch: Path, count: int, size: int) -> str:
    return subprocess.run([batch, str(count), str(size)], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(("count", "size"), [(SIZE // 8, 4), (1, SIZE - HEAD), (1, SIZE - HEAD - 3), (0, 0)])
def test_what_fits_is_written(batch: Path, count: int, size: int) -> None:
    assert filled(batch, count, size) == f"used {count * (HEAD + (size + 3) // 4 * 4)}"


@pytest.mark.parametrize(
    ("count", "size"), [(SIZE // 8 + 1, 4), (1, SIZE - HEAD + 1), (1, SIZE), (2, SIZE - HEAD), (1, 1 << 19), (5000, 0)]
)
def test_what_does_not_fit_ends_the_set_up(batch: Path, count: int, size: int) -> None:
    assert filled(batch, count, size) == f"failed nft {errno.ENOBUFS}"
