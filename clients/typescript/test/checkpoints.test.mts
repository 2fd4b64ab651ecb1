import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Sandbox, SandboxError } from '../src/index.mjs';
import { create } from './programs.mjs';

describe('a sandbox with something in it', () => {
  let sandbox: Sandbox;
  before(async () => {
    sandbox = await create();
    await sandbox.exec('echo kept > ~/note', { check: true });
  });
  after(() => sandbox.close());

  it('runs nothing while it is paused', async () => {
    await sandbox.pause();
    await assert.rejects(sandbox.exec('true'), SandboxError);
    await sandbox.resume();
    assert.equal((await sandbox.exec('echo on')).stdout, 'on\n');
  });

  it('has forks with its files, which keep their own', async () => {
    const ids = await sandbox.fork(2);
    assert.equal(ids.length, 2);
    const fork = await Sandbox.attach(ids[0]!);
    assert.equal((await fork.exec('cat ~/note; echo other > ~/note')).stdout, 'kept\n');
    await fork.close();
    assert.equal((await sandbox.exec('cat ~/note')).stdout, 'kept\n');
  });

  it('is saved, and others go on from there', async () => {
    const saved = await sandbox.checkpoint();
    assert.equal(saved.sandbox, sandbox.id);
    assert.equal(saved.saves, 'files');
    const restored = await Sandbox.restore(saved.name);
    assert.equal((await restored.exec('cat ~/note')).stdout, 'kept\n');
    await restored.close();
  });

  it('cannot be restored from a checkpoint that is not there', async () => {
    await assert.rejects(Sandbox.restore('nothing'), /there is no checkpoint nothing/);
  });
});
