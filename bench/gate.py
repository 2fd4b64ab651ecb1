"""The gate: passing and looking into connections, beside a direct connection, srt's proxy and mitmproxy."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import curl, install
from bench.harness import ROOT, Bench, Case, Failed, Row, Worker
from bench.workers.origin import BIG

HEAVY_TURNS = 5  # with srt beside us
BIG_TURNS = 15  # half a gigabyte each: of five the median was still luck
Value = float | Failed


def rows(bench: Bench) -> Iterator[Row]:
    """The gate's budgets of the design, measured with one curl against one origin on the loopback."""
    with ExitStack() as stack:
        project = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp")))
        origin = stack.enter_context(running_origin(bench))
        ours = stack.enter_context(Worker(bench.python, "bench.workers.gate", project))
        direct = f"http://127.0.0.1:{origin['port']}"
        yield from passing(bench, ours, direct, srt(bench, project))
        yield from looking(bench, ours, f"https://127.0.0.1:{origin['tls_port']}", stack)
        yield from crowd(bench, ours)
        yield unused(bench)


def passing(bench: Bench, ours: Worker, direct: str, srt: Callable[[list[str]], list[str]] | None) -> Iterator[Row]:
    found: dict[str, dict[str, Value]] = {}
    for name, (argv, count) in curl.fetches(direct).items():
        bench.log(f"gate: {name}")
        cases = {"direct": fetching(argv, count), "ours": ours.case(name)}
        if srt is not None:
            cases["srt"] = fetching(srt(argv), count)
        usual = HEAVY_TURNS if srt else bench.repetitions
        found[name] = turns(bench, cases, BIG_TURNS if name == "big" else usual)
    missing = Failed(bench.unavailable.get("srt", "no reason given"))
    for name, label, unit in (("big", "500 MB download", "MB/s"), ("small", "500 small requests, kept alive", "/s")):
        amount = BIG / 1e6 if name == "big" else curl.SMALL
        rate = {who: per_second(value, amount) for who, value in found[name].items()}
        peer = rate.get("srt", missing)
        yield figure(f"{label}: direct", rate["direct"], unit)
        yield figure(f"{label}: srt's proxy", peer, unit)
        yield figure(f"**{label}: passed by our gate**", rate["ours"], unit)
        if name == "big":
            yield at_least("… against direct", rate["ours"], rate["direct"], 0.6)
        yield at_least("… against srt", rate["ours"], peer, 2)
    each = {who: over(value, curl.NEW) for who, value in found["new"].items()}
    yield figure("a new connection and one request: direct", each["direct"], "ms")
    yield figure("a new connection and one request: srt's proxy", each.get("srt", missing), "ms")
    yield figure("**a new connection and one request: our gate**", each["ours"], "ms")
    yield at_most("… beyond direct", minus(each["ours"], each["direct"]), 1.5)


def looking(bench: Bench, ours: Worker, direct: str, stack: ExitStack) -> Iterator[Row]:
    bench.log("gate: interception")
    argv, count = curl.secure_fetches(direct)["https"]
    cases = {"direct": fetching(argv, count), "ours": ours.case("https")}
    try:
        proxy = stack.enter_context(mitmproxy())
        cases["mitmproxy"] = fetching([*argv, "-x", proxy], count)
        missing = Failed("")
    except Failed as error:
        missing = error
    rate = {who: per_second(value, count) for who, value in turns(bench, cases, 9).items()}
    peer = rate.get("mitmproxy", missing)
    yield figure("500 small HTTPS requests, kept alive: direct", rate["direct"], "/s")
    yield figure("500 small HTTPS requests, kept alive: mitmproxy", peer, "/s")
    yield figure("**500 small HTTPS requests, kept alive: looked into by our gate**", rate["ours"], "/s")
    yield at_least("… against mitmproxy", rate["ours"], peer, 2)
    first = turns(bench, {"direct": fetching(curl.words(f"{direct}/s", "-k"), 1), "ours": ours.case("first")}, 21)
    yield figure("first HTTPS request to a new host: direct", first["direct"], "ms")
    yield figure("**first HTTPS request to a new host: looked into by our gate**", first["ours"], "ms")
    yield at_most("… beyond direct", minus(first["ours"], first["direct"]), 15)


def crowd(bench: Bench, ours: Worker) -> Iterator[Row]:
    bench.log("gate: 500 connections for 30 s")
    what = "**500 connections at once for 30 s**, no error"
    try:
        requests, grown = ours.ask("crowd"), ours.ask("crowd-memory")
    except Failed as error:
        yield Row(what, f"failed: {error}", budget="no error, flat memory", held=False)
        return
    yield Row(what, f"{requests:.0f} requests/s, memory {grown:+.1f} MB", budget="≤ 8 MB", held=grown <= 8)


def unused(bench: Bench) -> Row:
    """What a sandbox that allows hosts, and a command that talks to none, import of the gate."""
    what = "modules of the gate imported when no network is used"
    program = (
        "import sys; from sandbox import Sandbox\n"
        "with Sandbox({'network': {'allowed_hosts': ['example.com']}}) as s: s.exec(['true'])\n"
        "print(*(one for one in ('asyncio', 'ssl', 'cryptography', 'sandbox.network.gate.gate') if one in sys.modules))"
    )
    with tempfile.TemporaryDirectory() as project:
        done = subprocess.run([bench.python, "-c", program], cwd=project, capture_output=True, text=True, check=False)
    if done.returncode:
        return Row(what, f"not measured: {done.stderr.strip()[-80:]}", budget="none", held=False)
    return Row(what, done.stdout.strip() or "none", budget="none", held=not done.stdout.strip())


# -- cases


def fetching(argv: list[str], count: int) -> Case:
    def run() -> float:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        try:
            return curl.milliseconds(done.stdout, count)
        except RuntimeError as error:
            raise Failed(f"{error} {done.stderr.strip()[-80:]}") from None

    return run


def turns(bench: Bench, cases: dict[str, Case], repetitions: int) -> dict[str, Value]:
    """As `bench.medians`, with fewer turns where each takes seconds."""
    usual, bench.repetitions = bench.repetitions, min(repetitions, bench.repetitions)
    try:
        return bench.medians(cases)
    finally:
        bench.repetitions = usual


def srt(bench: Bench, project: Path) -> Callable[[list[str]], list[str]] | None:
    """Wraps a command line in srt, which must not think of 127.0.0.1 as a way around its proxy."""
    if "srt" in bench.unavailable:
        return None
    modules = bench.npm / "node_modules"
    node = next(iter(modules.glob("node*/bin/node")), Path("node"))
    settings = project / "srt.json"
    files: dict[str, list[str]] = {"denyRead": [], "allowWrite": [], "denyWrite": []}
    network: dict[str, list[str]] = {"allowedDomains": ["127.0.0.1"], "deniedDomains": []}
    settings.write_text(json.dumps({"network": network, "filesystem": files}))
    start = [str(node), str(modules / "@anthropic-ai/sandbox-runtime/dist/cli.js"), "-s", str(settings), "-c"]
    return lambda argv: [*start, f"NO_PROXY= no_proxy= {shlex.join(argv)}"]


@contextmanager
def running_origin(bench: Bench) -> Iterator[dict[str, int]]:
    argv = [str(bench.python), "-m", "bench.workers.origin"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=env) as process:
        assert process.stdin and process.stdout
        where = json.loads(process.stdout.readline())
        os.environ |= {"BENCH_PORT": str(where["port"]), "BENCH_TLS_PORT": str(where["tls_port"])}
        os.environ["BENCH_AUTHORITY"] = where["authority"]
        try:
            yield where
        finally:
            process.stdin.close()


@contextmanager
def mitmproxy() -> Iterator[str]:
    """mitmproxy's own command, in an environment of its own: it pins what it depends on."""
    place = install.PLACE / "mitmproxy"
    program = place / "bin" / "mitmdump"
    if not program.exists():
        done = subprocess.run([sys.executable, "-m", "venv", place], capture_output=True, check=False)
        if not done.returncode:
            done = subprocess.run([place / "bin/pip", "install", "-q", "mitmproxy"], capture_output=True, check=False)
        if done.returncode:
            raise Failed("not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="bench-mitm-") as home:
        argv = [str(program), "-p", str(port), "--listen-host", "127.0.0.1", "--set", "ssl_insecure=true"]
        argv += ["--set", f"confdir={home}", "--set", "flow_detail=0", "--set", "termlog_verbosity=info"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout
            try:
                if not any("listening" in line for line in process.stdout):
                    raise Failed("it did not start")
                yield f"http://127.0.0.1:{port}"
            finally:
                process.kill()


# -- rows


def per_second(value: Value, amount: float) -> Value:
    return value if isinstance(value, Failed) else amount / value * 1000


def over(value: Value, count: int) -> Value:
    return value if isinstance(value, Failed) else value / count


def minus(one: Value, other: Value) -> Value:
    return next((value for value in (one, other) if isinstance(value, Failed)), None) or one - other  # type: ignore[operator]


def figure(what: str, value: Value, unit: str) -> Row:
    if isinstance(value, Failed):
        return Row(what, f"not measured: {value}")
    return Row(what, f"{value:.2f} {unit}" if value < 10 else f"{value:.0f} {unit}")


def at_least(what: str, ours: Value, other: Value, factor: float) -> Row:
    budget = f"≥ {factor:g} ×"
    if isinstance(ours, Failed) or isinstance(other, Failed):
        return Row(what, "", "not measured", budget, None if isinstance(other, Failed) else False)
    return Row(what, "", f"{ours / other:.2f} ×", budget, ours >= factor * other)


def at_most(what: str, value: Value, most: float) -> Row:
    if isinstance(value, Failed):
        return Row(what, "", "not measured", f"≤ {most:g} ms", False)
    return Row(what, "", f"{value:+.2f} ms", f"≤ {most:g} ms", value <= most)
