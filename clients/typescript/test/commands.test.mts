import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { CancelledError, CommandError, Sandbox, type Chunk } from '../src/index.mjs';
import { create } from './programs.mjs';

describe('a command', () => {
  let sandbox: Sandbox;
  before(async () => (sandbox = await create()));
  after(() => sandbox.close());

  it('gives its output as text and as bytes, on both streams', async () => {
    const result = await sandbox.exec(['printf', '\\377\\000']);
    assert.deepEqual([...result.stdout_bytes], [255, 0]);
    assert.equal(result.stdout, '\ufffd\0');
    assert.deepEqual([...(await sandbox.exec('printf "\\376" >&2')).stderr_bytes], [254]);
    assert.deepEqual(Object.keys(JSON.parse(JSON.stringify(result))).filter((key) => key.endsWith('_bytes')), []);
  });

  it('hands its output to callbacks as it comes, and keeps it', async () => {
    const seen: string[] = [];
    const result = await sandbox.exec('echo out; echo err >&2; exit 3', {
      onStdout: (data) => void seen.push(`out:${data}`),
      onStderr: (data) => void seen.push(`err:${data}`),
    });
    assert.deepEqual(seen.sort(), ['err:err\n', 'out:out\n']);
    assert.deepEqual([result.exit_code, result.stdout, result.stderr], [3, 'out\n', 'err\n']);
  });

  it('waits while a callback is busy, and keeps only so much', async () => {
    let most = 0;
    let total = 0;
    const result = await sandbox.exec('head -c 3000000 /dev/zero', {
      maxOutput: 10,
      async onStdout(data) {
        total += data.length;
        most = Math.max(most, data.length);
        await new Promise(setImmediate);
      },
    });
    assert.equal(total, 3_000_000);
    assert.ok(most <= 512 * 1024);
    assert.equal(result.truncated, true);
    assert.deepEqual([...result.stdout_bytes.subarray(0, 10)], Array(10).fill(0));
    assert.match(result.stdout, /2999990 more bytes/);
  });

  it('is killed when a callback throws, which is the error', async () => {
    let pid = '';
    const running = sandbox.exec('echo $$; exec sleep 1000', {
      onStdout(data) {
        pid = data.toString().trim();
        throw new RangeError('enough');
      },
    });
    await assert.rejects(running, RangeError);
    await gone(sandbox, pid);
  });

  it('that fails throws only when it is checked', async () => {
    await assert.rejects(sandbox.exec('echo so far; echo why >&2; exit 7', { check: true }), (problem) => {
      assert.ok(problem instanceof CommandError);
      assert.deepEqual([problem.exit_code, problem.stdout, problem.stderr], [7, 'so far\n', 'why\n']);
      assert.match(problem.message, /status 7: why/);
      return true;
    });
    assert.equal((await sandbox.exec('true', { check: true })).exit_code, 0);
  });

  it('that runs too long says so and keeps its output', async () => {
    let result = await sandbox.exec('echo early; exec sleep 1000', { timeout: 300 });
    for (let timeout = 1200; timeout < 60_000 && !result.stdout; timeout *= 4) {
      result = await sandbox.exec('echo early; exec sleep 1000', { timeout }); // a busy machine may not even start a shell in time
    }
    assert.deepEqual([result.timed_out, result.stdout], [true, 'early\n']);
    await assert.rejects(sandbox.exec('exec sleep 1000', { timeout: 100, check: true }), CommandError);
  });

  it('takes where it starts, variables and input', async () => {
    assert.equal((await sandbox.exec('pwd; echo $A; cat', { cwd: '/tmp', env: { A: '1' }, input: 'in' })).stdout, '/tmp\n1\nin');
    assert.equal((await sandbox.exec('pwd', '/tmp')).stdout, '/tmp\n');
    assert.equal((await sandbox.exec('pwd; cat', { workingDir: '/tmp', stdin: Buffer.from('in') })).stdout, '/tmp\nin');
    assert.equal((await sandbox.exec('pwd')).stdout, `${sandbox.directory}\n`);
  });

  it('refuses options that do not exist, and invalid times', async () => {
    await assert.rejects(sandbox.exec('true', { timeuot: 1 } as object), /unknown option "timeuot"/);
    await assert.rejects(sandbox.exec('true', { timeout: Number.NaN }), RangeError);
    await assert.rejects(sandbox.exec('true', { cwd: '/', workingDir: '/' }), /given twice/);
  });

  it('is killed when its signal is aborted', async () => {
    const controller = new AbortController();
    const stream = sandbox.execStream('echo $$; exec sleep 1000', { signal: controller.signal });
    const first = (await stream.next()).value as Chunk;
    controller.abort(new Error('enough'));
    await assert.rejects(stream.next(), /enough/);
    await gone(sandbox, first.data.toString().trim());
  });

  it('is killed when nobody wants its output any more', async () => {
    let pid = '';
    for await (const { data } of sandbox.execStream('echo $$; exec sleep 1000')) {
      pid = data.toString().trim();
      break;
    }
    await gone(sandbox, pid);
  });

  it('that was spawned is killed when its block is left', async () => {
    let pid = '';
    {
      await using process = await sandbox.spawn('echo $$; exec sleep 1000');
      for await (const { data } of process) {
        pid = data.toString().trim();
        break; // leaves the loop, not the command
      }
      assert.equal((await sandbox.exec(`kill -0 ${pid}`)).exit_code, 0);
    }
    await gone(sandbox, pid);
  });

  it('can be waited for twice', async () => {
    const process = await sandbox.spawn('echo once');
    const [first, second] = await Promise.all([process.wait(), process.wait()]);
    assert.deepEqual([first.stdout, second.stdout, (await process.wait()).stdout], ['once\n', 'once\n', 'once\n']);
    assert.equal(process.result?.exit_code, 0);
  });

  it('takes a large input', async () => {
    const input = Buffer.alloc(70 * 2 ** 20); // more than one request may have
    const process = await sandbox.spawn('wc -c');
    await process.write(input);
    await process.closeStdin();
    assert.equal((await process.wait()).stdout.trim(), String(input.length));
    assert.equal((await sandbox.exec('wc -c', { input })).stdout.trim(), String(input.length));
    assert.equal((await sandbox.exec('echo unread', { input, check: true })).stdout, 'unread\n');
  });

  it('is listed while it runs, and can be joined from elsewhere when it is kept', async () => {
    const process = await sandbox.spawn('echo ready; read line; echo got $line', { keep: 'worker' });
    for await (const { data } of process) if (data.includes('ready')) break;
    const [listed] = (await sandbox.processes()).filter(({ keep }) => keep === 'worker');
    assert.equal(listed?.pid, process.pid);
    assert.equal(listed?.tty, false);
    assert.ok(listed!.started > 1.7e9);
    process.close();

    await using other = await Sandbox.attach(sandbox.id);
    const joined = await other.connect('worker');
    assert.ok(joined.joined);
    await joined.write('hello\n');
    assert.match((await joined.wait()).stdout, /got hello/);
    assert.deepEqual((await sandbox.processes()).filter(({ keep }) => keep === 'worker'), []);
  });

  it('reports cancelling and programs that do not exist by errors of their own', async () => {
    await assert.rejects(sandbox.exec(['no-such-program']), CommandError);
    const process = await sandbox.spawn('sleep 1000');
    await process.cancel();
    await assert.rejects(process.wait(), CancelledError);
  });

  it('is one of many at a time', async () => {
    const results = await Promise.all(Array.from({ length: 50 }, () => sandbox.exec('echo one')));
    assert.ok(results.every((result) => result.stdout === 'one\n'));
  });

  it('stops when nobody reads it, and loses nothing', async () => {
    const size = 64 * 2 ** 20;
    const process = await sandbox.spawn(`head -c ${size} /dev/zero; touch /tmp/finished`);
    const before = memory();
    for (let i = 0; i < 100; i++) assert.equal((await sandbox.exec('test -e /tmp/finished')).exit_code, 1);
    assert.ok(memory() - before < 16 * 2 ** 20, `${memory() - before} bytes more`);
    let read = 0;
    for await (const { data } of process) read += data.length;
    assert.equal(read, size);
    assert.equal(process.result?.exit_code, 0);
  });

  it('costs a bounded amount of memory when it never ends', async () => {
    const before = memory();
    const process = await sandbox.spawn('yes');
    for (let i = 0; i < 200; i++) await sandbox.exec('true');
    assert.ok(memory() - before < 16 * 2 ** 20, `${memory() - before} bytes more`);
    process.close();
  });
});

/** Bytes that the program holds, outside and inside the heap. */
function memory(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

async function gone(sandbox: Sandbox, pid: string): Promise<void> {
  assert.match(pid, /^\d+$/);
  while ((await sandbox.exec(`kill -0 ${pid}`)).exit_code === 0);
}
