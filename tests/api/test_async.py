"""What asyncio programs need beside the one suite: cancelling, an end that may come twice, and nothing left behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from pathlib import Path

import pytest

from sandbox import AsyncSandbox, Sandbox, SandboxClosed


def config(project: Path) -> dict[str, object]:
    return {"filesystem": {"root": str(project)}}


def descriptors() -> int:
    """Pipes and sockets, which commands take; the sandbox's own watchers open other kinds when they get to it."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    return sum(one.startswith(("pipe:", "socket:")) for one in found)


async def settled(sandbox: AsyncSandbox, most: int) -> int:
    """How many descriptors there are once what was cancelled has been given back, or does not come back."""
    for _ in range(6000):
        if descriptors() <= most and not await sandbox.processes():
            break
        await asyncio.sleep(0.01)
    return descriptors()


def test_cancelled_commands_leave_no_descriptor_and_no_process(project: Path) -> None:
    async def main() -> None:
        async with AsyncSandbox(config(project)) as sandbox:
            await asyncio.gather(*(sandbox.exec("true") for _ in range(20)))
            await asyncio.to_thread(sandbox.sync._guard.wait_until_watching, 30)  # it has a pipe of its own
            before = descriptors()
            for round in range(10):
                tasks = [asyncio.ensure_future(sandbox.exec("sleep 1000")) for _ in range(25)]
                await asyncio.sleep(0.002 * round)  # cancelled at each stage of their life
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            assert await settled(sandbox, before) <= before

    asyncio.run(main())


#: What each call is given; those that are not here need nothing, or a path.
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "answer": (1, "deny"), "apply_patch": ("",), "chmod": (".", 0o755), "connect": ("worker",), "dial": (80,),
    "download": (".", "."), "edit": ("file", "a", "b"), "exec": ("true",), "glob": ("*",), "grep": ("x",),
    "rename": ("a", "b"), "restore": ("nothing",), "session": ("python",), "spawn": ("true",), "symlink": ("a", "b"),
    "update_network": ({},), "upload": (".", "."), "write_file": ("a", b"a"), "write_text": ("a", "a"),
}  # fmt: skip
WITHOUT_A_PATH = {
    "apply", "asks", "browser", "changes", "checkpoint", "discard", "extend", "fork", "pause", "processes", "python",
    "resume", "stats",
}  # fmt: skip


def calls() -> dict[str, tuple[object, ...]]:
    """Every coroutine method but those that begin and end the sandbox, with arguments for it."""
    found = [name for name, one in inspect.getmembers(AsyncSandbox, inspect.iscoroutinefunction) if name[0] != "_"]
    return {
        name: ARGUMENTS.get(name, () if name in WITHOUT_A_PATH else (".",))
        for name in found
        if name not in ("start", "close")
    }


@pytest.mark.parametrize(("name", "given"), calls().items(), ids=calls())
def test_every_call_can_be_given_up_while_the_sandbox_does_not_answer(
    name: str, given: tuple[object, ...], project: Path
) -> None:
    async def main() -> None:
        async with AsyncSandbox(config(project)) as sandbox:
            guest = sandbox.sync._running.pid
            assert guest
            os.kill(guest, signal.SIGSTOP)
            try:
                calling = asyncio.ensure_future(getattr(sandbox, name)(*given))
                await asyncio.sleep(0)
                calling.cancel()
                ended, _ = await asyncio.wait([calling], timeout=60)
                assert ended
            finally:
                os.kill(guest, signal.SIGCONT)
            assert calling.cancelled() or name in ("extend", "processes", "python", "session")  # which wait for nothing
            if name not in ("discard", "pause"):  # these go on, in their thread
                assert (await sandbox.exec("echo alive")).stdout == "alive\n"

    asyncio.run(main())


def test_a_start_that_is_cancelled_leaves_no_sandbox(project: Path) -> None:
    async def main() -> None:
        from sandbox import list_sandboxes

        sandbox = AsyncSandbox(config(project))
        starting = asyncio.ensure_future(sandbox.start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        for _ in range(3000):
            if not [one for one in list_sandboxes("running") if one.pid == os.getpid()]:
                break
            await asyncio.sleep(0.01)
        await sandbox.close()

    asyncio.run(main())


def test_closing_twice_at_once_or_later_is_no_error_and_nothing_runs_afterwards(project: Path) -> None:
    async def main() -> None:
        sandbox = AsyncSandbox(config(project))
        with pytest.raises(RuntimeError, match="not started"):
            await sandbox.exec("true")
        await sandbox.start()
        assert await sandbox.start() is sandbox
        await asyncio.gather(sandbox.close(), sandbox.close())
        await sandbox.close()
        with pytest.raises(SandboxClosed):
            await sandbox.exec("true")
        with pytest.raises(SandboxClosed):
            await sandbox.read_file("x")
        with pytest.raises(SandboxClosed):
            await sandbox.start()

    asyncio.run(main())


def test_one_that_was_never_started_can_be_closed(project: Path) -> None:
    async def main() -> None:
        sandbox = AsyncSandbox(config(project))
        await sandbox.close()
        with pytest.raises(SandboxClosed):
            await sandbox.exec("true")

    asyncio.run(main())


def test_a_callback_may_be_a_coroutine_function(project: Path) -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def note(data: bytes) -> None:
            await asyncio.sleep(0)
            seen.append(data)

        async with AsyncSandbox(config(project)) as sandbox:
            await sandbox.exec("printf abc", on_stdout=note)
        assert b"".join(seen) == b"abc"

    asyncio.run(main())


def test_a_read_that_is_cancelled_loses_nothing(project: Path) -> None:
    async def main() -> None:
        async with AsyncSandbox(config(project)) as sandbox, await sandbox.spawn("read x; echo $x; read x") as process:
            reading = asyncio.ensure_future(process.read())
            await asyncio.sleep(0.05)
            reading.cancel()
            await process.write(b"kept\n")
            assert await process.read() == b"kept\n"

    asyncio.run(main())


def test_a_reader_that_is_slow_slows_the_command_down(project: Path) -> None:
    async def main() -> None:
        async with AsyncSandbox(config(project)) as sandbox, await sandbox.spawn("yes") as process:
            assert (await process.read(2)) == b"y\n"
            while process._ahead._bytes < 2**19:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert process._ahead._bytes < 2**20

    asyncio.run(main())


def test_a_dialled_port_is_a_stream(project: Path) -> None:
    serve = (
        "import socket\ns = socket.create_server(('127.0.0.1', 5005)); print('up', flush=True)\n"
        "c, _ = s.accept(); c.sendall(c.recv(100).upper())"
    )

    async def main() -> None:
        command = ["python3", "-c", serve]
        async with AsyncSandbox(config(project)) as sandbox, await sandbox.spawn(command) as server:
            assert (await server.read()).startswith(b"up")
            reader, writer = await asyncio.open_connection(sock=await sandbox.dial(5005))
            writer.write(b"hello")
            assert await reader.read() == b"HELLO"
            writer.close()

    asyncio.run(main())


def test_many_sandboxes_in_one_program_do_not_hold_each_other_up(project: Path) -> None:
    async def one(number: int) -> str:
        async with AsyncSandbox(config(project)) as sandbox:
            return (await sandbox.exec(f"echo {number}")).stdout

    async def main() -> None:
        assert await asyncio.gather(*(one(number) for number in range(5))) == [f"{number}\n" for number in range(5)]

    asyncio.run(main())


def test_the_synchronous_sandbox_is_available(project: Path) -> None:
    async def main() -> None:
        async with AsyncSandbox(config(project)) as sandbox:
            assert isinstance(sandbox.sync, Sandbox) and sandbox.sync.id == sandbox.id

    asyncio.run(main())


def test_two_tasks_that_start_it_build_one(project: Path) -> None:
    async def main() -> None:
        sandbox = AsyncSandbox(config(project))
        built = []
        build = sandbox._build
        sandbox._build = lambda loop: built.append(1) or build(loop)  # type: ignore[func-returns-value,method-assign]
        await asyncio.gather(sandbox.start(), sandbox.start())
        await sandbox.close()
        assert len(built) == 1

    asyncio.run(main())


def test_closing_it_while_it_starts_ends_what_was_built(project: Path) -> None:
    async def main() -> None:
        sandbox = AsyncSandbox(config(project))
        starting = asyncio.create_task(sandbox.start())
        await asyncio.sleep(0)  # it has begun
        await sandbox.close()
        with pytest.raises(SandboxClosed):
            await starting
        with pytest.raises(SandboxClosed):
            sandbox.sync.exec("true")

    asyncio.run(main())


def test_a_run_that_is_given_up_while_it_waits_stops_nobody_elses(project: Path) -> None:
    async def run() -> None:
        async with asyncio.timeout(100), AsyncSandbox(config(project)) as sb, await sb.python("plain") as python:
            assert (await python.run("ran = []")).error is None
            begun = project / "begun"
            code = "import os\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): pass\n'whole'"
            first = asyncio.ensure_future(python.run(code))
            while not begun.exists():
                await asyncio.sleep(0.01)
            second = asyncio.ensure_future(python.run("ran.append(2)"))
            await asyncio.sleep(0)  # it has begun to wait
            second.cancel()
            await asyncio.wait({second})
            (project / "go").touch()
            done = await first
            assert done.error is None and done.outputs[0].text == "'whole'"
            assert (await python.run("ran")).outputs[0].text == "[]"

    asyncio.run(run())


def test_a_run_that_is_given_up_while_it_runs_is_interrupted_and_the_state_stays(project: Path) -> None:
    async def run() -> None:
        async with asyncio.timeout(100), AsyncSandbox(config(project)) as sb, await sb.python("plain") as python:
            code = "x = 1\nopen('begun', 'w').close()\nimport time\ntime.sleep(1000)"
            running = asyncio.ensure_future(python.run(code))
            while not (project / "begun").exists():
                await asyncio.sleep(0.01)
            running.cancel()
            assert (await python.run("x")).outputs[0].text == "1"

    asyncio.run(run())
