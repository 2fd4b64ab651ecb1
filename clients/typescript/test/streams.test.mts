/** A command's input and outputs as streams of Node. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable, Transform } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { after, before, describe, it } from 'node:test';
import { CommandError, ConfigError, Process, Sandbox, SandboxError } from '../src/index.mjs';
import { create } from './programs.mjs';

let sandbox: Sandbox;
before(async () => void (sandbox = await create()));
after(() => sandbox.close());

describe('streams', () => {
  it('are piped through a command', async () => {
    const sorted = await sandbox.spawn('sort -r');
    assert.ok(sorted instanceof Process);
    const [, printed] = await Promise.all([pipeline(Readable.from(['b\n', 'a\n', 'c\n']), sorted.stdin), text(sorted.stdout)]);
    assert.equal(printed, 'c\nb\na\n');
    assert.equal((await sorted.wait()).exit_code, 0);
  });

  it('carry more than fits a window, as fast as they are read', async () => {
    const command = await sandbox.spawn('head -c 5000000 /dev/zero; echo done >&2');
    let size = 0;
    const count = new Transform({
      transform(piece: Buffer, _encoding, done) {
        size += piece.length;
        setImmediate(done);
      },
    });
    const [, complaint] = await Promise.all([pipeline(command.stdout, count.resume()), text(command.stderr)]);
    assert.equal(size, 5_000_000);
    assert.equal(complaint, 'done\n');
    assert.equal(command.result?.exit_code, 0);
  });

  it('leave the other output to whoever waits', async () => {
    const command = await sandbox.spawn('echo out; echo err >&2; exit 3');
    const printed = text(command.stderr);
    const result = await command.wait();
    assert.deepEqual([result.stdout, result.stderr, result.exit_code], ['out\n', '', 3]);
    assert.equal(await printed, 'err\n');
  });

  it('that are destroyed hold up nobody', async () => {
    const command = await sandbox.spawn('head -c 5000000 /dev/zero; echo done >&2');
    command.stdout.destroy();
    assert.equal((await command.wait()).stderr, 'done\n');
  });

  it('fail for a writer when the command reads no more', async () => {
    const command = await sandbox.spawn('true');
    await command.wait();
    const failed = once(command.stdin, 'error');
    command.stdin.write('x');
    assert.equal((await failed)[0].code, 'EPIPE');
  });

  it('fail when the command is cancelled', async () => {
    const command = await sandbox.spawn('sleep 100');
    const reading = text(command.stdout);
    command.cancel().catch(() => {});
    await assert.rejects(reading, { code: 'CANCELLED' });
  });
});

describe('an error', () => {
  it('carries its template and values, so that it can be translated', async () => {
    const problem = await sandbox.exec(['no-such-program']).catch((caught: unknown) => caught);
    assert.ok(problem instanceof CommandError);
    assert.ok(problem.template?.includes('{'), problem.template);
    const shown = problem.template!.replace(/\{(\w+)(?:![rs])?\}/g, (_, name: string) => String(problem.values[name]));
    assert.equal(problem.message, shown);
    await assert.rejects(create({ network: { allowed_hots: [] } } as object), (one) => one instanceof ConfigError && one.template !== undefined);
    const missing = await sandbox.readFile('/none').catch((caught: unknown) => caught as SandboxError);
    assert.equal((missing as SandboxError).template, undefined);
  });
});
