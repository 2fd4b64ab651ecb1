import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { CancelledError, ClosedError, CommandError, FileError, getVm, killVm, Sandbox, type Event } from '../src/index.js';

describe('a sandbox', () => {
  let sandbox: Sandbox;
  before(async () => (sandbox = await Sandbox.create()));
  after(() => sandbox.close());

  it('throws errors that instanceof tells apart', async () => {
    await assert.rejects(sandbox.readFile('/tmp/missing'), (problem) => problem instanceof FileError && problem.errorName === 'ENOENT');
    await assert.rejects(sandbox.exec(['no-such-program']), CommandError);
    const process = await sandbox.spawn('sleep 1000');
    await process.cancel();
    await assert.rejects(process.wait(), CancelledError);
  });

  it('kills a command when its signal is aborted', async () => {
    const controller = new AbortController();
    const stream = sandbox.execStream('echo $$; exec sleep 1000', { signal: controller.signal });
    const first = await stream.next();
    const pid = (first.value as { data: Buffer }).data.toString().trim();
    controller.abort(new Error('enough'));
    await assert.rejects(stream.next(), /enough/);
    while ((await sandbox.exec(`kill -0 ${pid}`)).exit_code === 0);
  });

  it('kills a command whose output nobody wants any more', async () => {
    let pid = '';
    for await (const { data } of sandbox.execStream('echo $$; exec sleep 1000')) {
      pid = data.toString().trim();
      break;
    }
    while ((await sandbox.exec(`kill -0 ${pid}`)).exit_code === 0);
  });

  it('tells what happens', async () => {
    const told = new Promise<Event>((resolve) => {
      const stop = sandbox.onEvent((event) => {
        if (event.type === 'exec' && event.exec.exit_code === 23) {
          stop();
          resolve(event);
        }
      });
    });
    await sandbox.exec('exit 23');
    assert.equal((await told).type, 'exec');
  });

  it('runs many commands at a time', async () => {
    const results = await Promise.all(Array.from({ length: 50 }, () => sandbox.exec('echo one')));
    assert.ok(results.every((result) => result.stdout === 'one\n'));
  });

  it('moves a large file in and out', async () => {
    const content = Buffer.alloc(10 * 2 ** 20 + 17, 'some bytes, again and again. ');
    await sandbox.writeFile('/tmp/large', content);
    assert.ok((await sandbox.readFile('/tmp/large')).equals(content));
  });

  it('can be attached to by its id', async () => {
    await sandbox.writeFile('/tmp/note', 'left here');
    const attached = await Sandbox.attach(sandbox.id);
    assert.equal((await attached.readFile('/tmp/note')).toString(), 'left here');
    await attached.close();
    assert.equal((await sandbox.exec('true')).exit_code, 0);
  });
});

it('is listed, and ends when it is killed', async () => {
  const sandbox = await Sandbox.create();
  assert.equal((await getVm(sandbox.id)).status, 'running');
  await killVm(sandbox.id);
  assert.equal((await getVm(sandbox.id)).status, 'stopped');
  await assert.rejects(sandbox.exec('true'), ClosedError);
  await sandbox.close();
  await assert.rejects(killVm('vm-nowhere'), /vm-nowhere/);
});

it('ends with the process that made it', async () => {
  const script = `
    const { Sandbox } = await import(${JSON.stringify(new URL('../src/index.js', import.meta.url).href)});
    console.log((await Sandbox.create()).id);
    process.kill(process.pid, 'SIGKILL');
  `;
  const done = spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
  while ((await getVm(done.stdout.trim())).status === 'running');
});

it('says what is missing when there is no such program', async () => {
  await assert.rejects(Sandbox.create({}, { command: ['/no/such/program'] }), /cannot start \/no\/such\/program/);
});
