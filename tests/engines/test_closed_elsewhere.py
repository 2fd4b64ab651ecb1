"""A command that one thread waits for and another one closes."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from sandbox import Sandbox, SandboxClosed

pytestmark = pytest.mark.walls


@pytest.mark.parametrize("way", ["wait", "chunks"])
def test_closing_a_command_ends_it_although_another_thread_waits_for_it(tmp_path: Path, way: str) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        process = sandbox.spawn("echo $$ > pid; echo on; exec sleep 1000")
        assert process.read(3) == b"on\n"
        problems: list[BaseException] = []

        def waits() -> None:
            try:
                process.wait() if way == "wait" else list(process.chunks())
            except SandboxClosed as problem:
                problems.append(problem)

        waiting = Thread(target=waits)
        waiting.start()
        process.close()
        waiting.join(30)
        assert not waiting.is_alive() and len(problems) == 1
        gone = "for n in $(seq 500); do kill -0 $(cat pid) 2>/dev/null || exit 0; sleep 0.02; done; exit 1"
        assert sandbox.exec(gone).exit_code == 0
