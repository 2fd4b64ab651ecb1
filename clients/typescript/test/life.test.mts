import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  ClosedError,
  ConfigError,
  Desktop,
  FileError,
  getSandbox,
  getVm,
  killSandbox,
  listSandboxes,
  NotFoundError,
  NotStartedError,
  Process,
  prune,
  runWithConfig,
  Sandbox,
  type Event,
} from '../src/index.mjs';
import { awake, eventually, run, temporaryDirectory } from './programs.mjs';

const members = (of: object): [string, PropertyDescriptor][] => Object.entries(Object.getOwnPropertyDescriptors(of));
/** Methods that no program sees: the types hide them. */
const INTERNAL = new Set(['begin', 'end', 'over', 'execWatched', 'feed', 'process', 'stream', 'tell', 'collect', 'ask', 'do', 'bytes']);

describe('a sandbox', () => {
  let sandbox: Sandbox;
  before(async () => (sandbox = await Sandbox.create()));
  after(() => sandbox.close());

  it('reports when commands start and end, to the fraction of a second', async () => {
    const told: Event[] = [];
    const ended = new Promise<void>((resolve) => {
      const stop = sandbox.onEvent((event) => {
        told.push(event);
        if (event.type === 'exec' && event.exec.exit_code === 23) {
          stop();
          resolve();
        }
      });
    });
    await sandbox.exec('exit 23');
    await awake(ended);
    const end = told.find((event) => event.type === 'exec' && event.exec.exit_code === 23);
    assert.ok(end?.type === 'exec');
    const start = told.find((event) => event.type === 'exec_start' && event.exec_start.id === end.exec.id);
    assert.ok(start?.type === 'exec_start');
    assert.ok(start.exec_start.pid > 0 && start.timestamp <= end.timestamp);
    assert.ok(told.some(({ timestamp }) => !Number.isInteger(timestamp)));
  });

  it('survives event handlers that throw, which is a warning', async () => {
    const warned = once(process, 'warning');
    const stops = [
      sandbox.onEvent(() => assert.fail('a bug at once')),
      sandbox.onEvent(async () => assert.fail('a bug later')),
    ];
    const toldAnother = new Promise<void>((resolve) => stops.push(sandbox.onEvent(() => resolve())));
    await sandbox.exec('true');
    assert.match(String((await awake(warned))[0]), /a bug/);
    await awake(toldAnother);
    stops.forEach((stop) => stop());
    assert.equal((await sandbox.exec('echo alive')).stdout, 'alive\n');
  });

  it('can be attached to by a part of its id, and knows the same of itself', async () => {
    await sandbox.writeFile('/tmp/note', 'left here');
    const attached = await Sandbox.attach(sandbox.id.slice('vm-'.length));
    assert.deepEqual(
      [attached.id, attached.directory, attached.engine, attached.ports],
      [sandbox.id, sandbox.directory, sandbox.engine, sandbox.ports],
    );
    assert.equal(await attached.readText('/tmp/note'), 'left here');
    await attached.close();
    assert.equal((await sandbox.exec('true')).exit_code, 0);
  });

  it('ends every call when its signal is aborted, and runs on', async () => {
    const aborted = AbortSignal.abort(new Error('not now'));
    await using process = await sandbox.spawn('exec sleep 1000');
    const calls: (() => Promise<unknown>)[] = [
      () => Sandbox.create({}, { signal: aborted }),
      () => Sandbox.attach(sandbox.id, { signal: aborted }),
      () => Sandbox.restore('x', {}, { signal: aborted }),
      () => Sandbox.connect('http://127.0.0.1:1', 'token', { signal: aborted }),
      () => listSandboxes({ signal: aborted }),
      () => getSandbox(sandbox.id, { signal: aborted }),
      () => killSandbox(sandbox.id, { signal: aborted }),
      () => prune({ signal: aborted }),
      () => runWithConfig({}, ['run', 'true'], { signal: aborted }),
      () => sandbox.exec('true', { signal: aborted }),
      () => sandbox.spawn('true', { signal: aborted }),
      () => sandbox.connect('x', { signal: aborted }),
      () => sandbox.processes({ signal: aborted }),
      () => sandbox.writeFile('/tmp/x', '', { signal: aborted }),
      () => sandbox.readFile('/tmp/x', { signal: aborted }),
      () => sandbox.readText('/tmp/x', { signal: aborted }),
      () => sandbox.listFiles('/tmp', { signal: aborted }),
      () => sandbox.stat('/tmp', { signal: aborted }),
      () => sandbox.exists('/tmp', { signal: aborted }),
      () => sandbox.mkdir('/tmp/x', { signal: aborted }),
      () => sandbox.remove('/tmp/x', { signal: aborted }),
      () => sandbox.rename('/tmp/x', '/tmp/y', { signal: aborted }),
      () => sandbox.symlink('x', '/tmp/y', { signal: aborted }),
      () => sandbox.readlink('/tmp/y', { signal: aborted }),
      () => sandbox.upload('.', '/tmp/y', { signal: aborted }),
      () => sandbox.download('/tmp', '/nowhere/at/all', { signal: aborted }),
      () => sandbox.changes({ signal: aborted }),
      () => sandbox.apply({ signal: aborted }),
      () => sandbox.discard({ signal: aborted }),
      () => sandbox.updateNetwork({}, { signal: aborted }),
      () => sandbox.dial(80, { signal: aborted }),
      () => sandbox.stats({ signal: aborted }),
      () => sandbox.extend({ signal: aborted }),
      () => sandbox.execStream('true', { signal: aborted }).next(),
      () => sandbox.chmod('/tmp', 0o755, { signal: aborted }),
      () => sandbox.asks({ signal: aborted }),
      () => sandbox.answer(1, 'deny', { signal: aborted }),
      () => sandbox.browser({ signal: aborted }),
      () => sandbox.pause({ signal: aborted }),
      () => sandbox.resume({ signal: aborted }),
      () => sandbox.checkpoint('x', { signal: aborted }),
      () => sandbox.fork(1, { signal: aborted }),
      () => process.wait({ signal: aborted }),
      () => process.write('x', { signal: aborted }),
      () => process.closeStdin({ signal: aborted }),
      () => process.signal('TERM', { signal: aborted }),
      () => process.resize(1, 1, { signal: aborted }),
      () => process.cancel({ signal: aborted }),
      () => sandbox.desktop.start({ signal: aborted }),
      () => sandbox.desktop.size({ signal: aborted }),
      () => sandbox.desktop.screenshot(undefined, { signal: aborted }),
      () => sandbox.desktop.windows({ signal: aborted }),
      () => sandbox.desktop.click(1, 1, 'left', 1, { signal: aborted }),
      () => sandbox.desktop.doubleClick(1, 1, { signal: aborted }),
      () => sandbox.desktop.move(1, 1, { signal: aborted }),
      () => sandbox.desktop.drag([{ x: 1, y: 1 }], 'left', { signal: aborted }),
      () => sandbox.desktop.scroll(1, 1, 0, 1, { signal: aborted }),
      () => sandbox.desktop.pointer({ signal: aborted }),
      () => sandbox.desktop.type('x', { signal: aborted }),
      () => sandbox.desktop.keypress('x', { signal: aborted }),
      () => sandbox.desktop.recordAudio(250, { signal: aborted }),
      () => sandbox.desktop.playAudio(new Uint8Array(), 'wav', { signal: aborted }),
      () => sandbox.desktop.startVideo(10, { signal: aborted }),
      () => sandbox.desktop.stopVideo({ signal: aborted }),
      () => sandbox.desktop.capabilities({ signal: aborted }),
    ];
    for (const call of calls) await assert.rejects(call, /not now/, String(call));

    // These are all the calls that there are.
    const called = calls.map((call) => /(\w+)\(/.exec(String(call).replace(/^\(\) => /, ''))![1]!);
    const withoutSignal = new Set(['constructor', 'close', 'onEvent', 'ref', 'unref']);
    for (const kind of [Sandbox, Object.getPrototypeOf(Sandbox) as typeof Sandbox, Process, Desktop]) {
      for (const [name, { value }] of [...members(kind.prototype), ...members(kind)]) {
        if (typeof value !== 'function' || withoutSignal.has(name) || INTERNAL.has(name)) continue;
        assert.ok(called.includes(name), `${kind.name}.${name} is not among them`);
      }
    }

    const controller = new AbortController();
    const running = sandbox.exec('exec sleep 1000', { signal: controller.signal });
    controller.abort();
    await assert.rejects(running, { name: 'AbortError' });
    assert.equal((await sandbox.exec('true')).exit_code, 0);
  });

  it('reports what it uses, and how long it will live', async () => {
    await using running = await sandbox.spawn('exec sleep 1000');
    const { memory_bytes, cpu_ms, processes } = await sandbox.stats();
    assert.ok(running.pid > 0 && (processes === null || processes > 0));
    assert.ok(memory_bytes === null || memory_bytes > 0);
    assert.ok(cpu_ms === null || cpu_ms >= 0);
    await sandbox.extend({ lifetime: 3_600_000, idleTimeout: 60_000 });
    const { lifetime_left } = await sandbox.stats();
    assert.ok(lifetime_left! > 3000 && lifetime_left! <= 3600);
    await sandbox.extend({ lifetime: null, idleTimeout: null });
    assert.equal((await sandbox.stats()).lifetime_left ?? null, null);
    await assert.rejects(sandbox.extend({ lifetime: Number.NaN }), RangeError);
  });
});

describe('the end of a sandbox', () => {
  it('comes by `await using`, and by closing any number of times', async () => {
    let id: string;
    {
      await using sandbox = await Sandbox.create();
      id = sandbox.id;
      await Promise.all([sandbox.close(), sandbox.close()]);
      await assert.rejects(sandbox.exec('true'), ClosedError);
    }
    assert.equal((await getSandbox(id)).status, 'stopped');
  });

  it('comes when its lifetime is over', async () => {
    const sandbox = await Sandbox.create({ limits: { lifetime: 1 } });
    await assert.rejects(sandbox.exec('exec sleep 1000'));
    await assert.rejects(sandbox.exec('true'), ClosedError);
    await sandbox.close();
  });

  it('comes by killing it, which the registry knows', async () => {
    const sandbox = await Sandbox.create();
    assert.equal((await getVm(sandbox.id)).status, 'running');
    assert.ok((await listSandboxes({ status: 'running' })).some(({ id }) => id === sandbox.id));
    await killSandbox(sandbox.id);
    assert.equal((await getSandbox(sandbox.id)).status, 'stopped');
    await assert.rejects(sandbox.exec('true'), ClosedError);
    await sandbox.close();
  });

  it('comes when `close` is aborted, even while the process that owns it hangs', async () => {
    const sandbox = await Sandbox.create();
    const { pid } = await getSandbox(sandbox.id);
    process.kill(pid!, 'SIGSTOP');
    await assert.rejects(sandbox.close({ signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' });
    await eventually(() => !existsSync(`/proc/${pid}/exe`));
    await assert.rejects(sandbox.exec('true'), ClosedError);
    await assert.rejects(sandbox.close({ grase: 1 } as object), /unknown option "grase"/);
  });

  it('comes with the program that made it', async () => {
    const { stdout } = run(`console.log((await Sandbox.create()).id); process.kill(process.pid, 'SIGKILL');`);
    while ((await getSandbox(stdout.trim())).status === 'running');
  });
});

describe('a program that forgets to close', () => {
  it('exits when its work is done, with a sandbox of its own', async () => {
    const done = run(`const sb = await Sandbox.create(); console.log((await sb.exec('echo ' + sb.id)).stdout.trim());`);
    assert.deepEqual([done.status, done.stderr], [0, '']);
    while ((await getSandbox(done.stdout.trim())).status === 'running');
  });

  it('exits when its work is done, with a sandbox that it attached to', async () => {
    await using sandbox = await Sandbox.create();
    const done = run(`const sb = await Sandbox.attach('${sandbox.id}'); console.log((await sb.exec('echo hello')).stdout);`);
    assert.deepEqual([done.status, done.stderr, done.stdout], [0, '', 'hello\n\n']);
    assert.equal((await sandbox.exec('true')).exit_code, 0);
  });

  it('runs on while a call is under way, but not for a command that it let go', async () => {
    const waits = run(`const sb = await Sandbox.create(); sb.exec('sleep 0.2; echo done').then((r) => console.log(r.stdout));`);
    assert.deepEqual([waits.status, waits.stdout], [0, 'done\n\n']);
    const leaves = run(`const sb = await Sandbox.create(); (await sb.spawn('sleep 1000')).unref(); console.log('left');`);
    assert.deepEqual([leaves.status, leaves.stdout], [0, 'left\n']);
  });
});

describe('an error', () => {
  it('says that there is no such sandbox', async () => {
    await assert.rejects(Sandbox.attach('vm-nowhere'), (problem) => {
      assert.ok(problem instanceof NotFoundError);
      assert.equal(problem.code, 'NOT_FOUND');
      assert.match(problem.message, /vm-nowhere/);
      return true;
    });
    await assert.rejects(Sandbox.attach(''), NotFoundError);
    await assert.rejects(killSandbox('vm-nowhere'), NotFoundError);
    await assert.rejects(getSandbox('--help'), NotFoundError);
  });

  it('says that a sandbox has ended, without paths of ours', async () => {
    const sandbox = await Sandbox.create();
    await sandbox.close();
    await assert.rejects(Sandbox.attach(sandbox.id), (problem) => {
      assert.ok(problem instanceof ClosedError);
      assert.equal(problem.message, `sandbox ${sandbox.id} is not running`);
      return true;
    });
  });

  it('comes at once when the signal is aborted, also of a program that never answers, which is killed', async () => {
    const file = join(temporaryDirectory(), 'pid');
    const command = ['/bin/sh', '-c', `echo $$ > ${file}; exec sleep 1000`];
    const controller = new AbortController();
    const creating = Sandbox.create({}, { command, signal: controller.signal });
    const pid = await eventually(() => existsSync(file) && Number(readFileSync(file, 'utf8')));
    controller.abort(new Error('enough'));
    await assert.rejects(creating, /enough/);
    await eventually(() => !existsSync(`/proc/${pid}/exe`));
  });

  it('says that the program cannot be started, or ended at once', async () => {
    await assert.rejects(Sandbox.create({}, { command: ['/no/such/program'] }), NotStartedError);
    await assert.rejects(Sandbox.create({}, { command: ['/bin/sh', '-c', 'exit 3'] }), /ended with status 3/);
  });

  it('says what is wrong with the configuration', async () => {
    await assert.rejects(Sandbox.create({ network: { allowed_host: [] } } as object), (problem) => {
      assert.ok(problem instanceof ConfigError);
      assert.match(problem.message, /allowed_hosts/);
      return true;
    });
  });

  it('has the codes that Node programs test for', async () => {
    await using sandbox = await Sandbox.create();
    await assert.rejects(sandbox.readFile('/tmp/missing'), (problem) => problem instanceof FileError && problem.code === 'ENOENT');
    await assert.rejects(sandbox.readFile('/tmp/missing'), { code: 'ENOENT', errno: 2 });
  });
});
