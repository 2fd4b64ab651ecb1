"""E2B's own clients from npm, as they are, against a real server on the loopback."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from tests.integrations.e2b_served import settings
from tests.server.serving import Served

pytestmark = pytest.mark.integrations
MODULES = Path(os.environ.get("E2B_NODE_MODULES", Path(__file__).parents[2] / ".integrations" / "e2b" / "node_modules"))
PROGRAM = """
import { createRequire } from 'node:module'
const require = createRequire(process.env.MODULES + '/x')
const { Sandbox, CommandExitError } = require('@e2b/code-interpreter')
const told = {}
const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { kind: 'js' }, envs: { LASTING: '1' } })
try {
  told.running = await sandbox.isRunning()
  const printed = []
  const done = await sandbox.commands.run('echo $LASTING; pwd', { onStdout: text => printed.push(text) })
  told.command = [done.stdout, printed.join(''), done.exitCode]
  try {
    await sandbox.commands.run('exit 3')
  } catch (error) {
    told.failed = [error instanceof CommandExitError, error.exitCode]
  }
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(cat.pid, 'hello')
  await sandbox.commands.closeStdin(cat.pid)
  told.stdin = (await cat.wait()).stdout
  await sandbox.files.write('a/b.txt', 'text')
  await sandbox.files.write([{ path: 'm1', data: '1' }, { path: 'm2', data: new Blob(['2']) }])
  told.files = [await sandbox.files.read('a/b.txt'), await sandbox.files.read('m2')]
  told.path = (await sandbox.files.getInfo('m1')).path
  told.list = (await sandbox.files.list('a')).map(one => one.name)
  told.exists = [await sandbox.files.exists('m1'), await sandbox.files.exists('none')]
  const seen = new Promise(resolve => { globalThis.saw = resolve })
  const watch = await sandbox.files.watchDir('a', event => globalThis.saw(event.name))
  await sandbox.files.write('a/new', 'x')
  told.watched = await seen
  await watch.stop()
  let screen = ''
  const onData = data => { screen += new TextDecoder().decode(data) }
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData })
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit\\n'))
  await terminal.wait()
  told.terminal = screen.includes('30 100')
  told.signed = await (await fetch(await sandbox.downloadUrl('a/b.txt'))).text()
  await sandbox.runCode('x = 41')
  const lines = []
  const code = await sandbox.runCode('print("printed"); x + 1', { onStdout: message => lines.push(message.line) })
  told.code = [code.text, lines.join('')]
  told.error = (await sandbox.runCode('1 / 0')).error.name
  const context = await sandbox.createCodeContext({ language: 'javascript' })
  told.context = (await sandbox.runCode('6 * 7', { context })).text
  await sandbox.removeCodeContext(context)
  const pages = Sandbox.list({ query: { metadata: { kind: 'js' } } })
  told.listed = (await pages.nextItems()).map(one => one.sandboxId === sandbox.sandboxId)
  await sandbox.pause()
  told.paused = await sandbox.isRunning()
  told.state = (await (await Sandbox.connect(sandbox.sandboxId)).runCode('x')).text
  told.host = sandbox.getHost(80).startsWith('80-' + sandbox.sandboxId + '.localhost')
} finally {
  told.killed = [await sandbox.kill(), await sandbox.isRunning()]
}
console.log(JSON.stringify(told))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("h"))
    yield server
    server.end()


@pytest.mark.skipif(which("node") is None, reason="no node")
def test_the_clients_from_npm_do_what_they_do_with_e2b(served: Served, tmp_path: Path) -> None:
    assert (MODULES / "@e2b" / "code-interpreter").is_dir(), "scripts/integrations installs it"
    program = tmp_path / "program.mjs"
    program.write_text(PROGRAM)
    environment = {**os.environ, **settings(served), "MODULES": str(MODULES)}
    done = subprocess.run(["node", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "running": True,
        "command": ["1\n/home/user\n", "1\n/home/user\n", 0],
        "failed": [True, 3],
        "stdin": "hello",
        "files": ["text", "2"],
        "path": "/home/user/m1",
        "list": ["b.txt"],
        "exists": [True, False],
        "watched": "new",
        "terminal": True,
        "signed": "text",
        "code": ["42", "printed\n"],
        "error": "ZeroDivisionError",
        "context": "42",
        "listed": [True],
        "paused": False,
        "state": "41",
        "host": True,
        "killed": [True, False],
    }
