import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { ClosedError, Sandbox } from '../src/index.mjs';
import { create, temporaryDirectory } from './programs.mjs';

describe('an overlay', () => {
  let project: string;
  let sandbox: Sandbox;
  beforeEach(async () => {
    project = temporaryDirectory();
    fs.writeFileSync(join(project, 'old'), 'old');
    sandbox = await create({ filesystem: { root: project, overlay: true } });
    await sandbox.exec('echo new > new; echo changed > old; mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit', {
      check: true,
    });
  });
  afterEach(async () => {
    await sandbox.close();
    fs.rmSync(project, { recursive: true });
  });

  it('lists changes and applies those that are asked for', async () => {
    const changes = await sandbox.changes();
    assert.equal(changes.find(({ path }) => path === 'new')?.kind, 'added');
    assert.equal(changes.find(({ path }) => path === 'old')?.kind, 'modified');
    assert.ok(changes.some(({ path, risk }) => path === '.git/hooks/pre-commit' && risk));
    assert.equal(fs.existsSync(join(project, 'new')), false);

    assert.deepEqual((await sandbox.apply({ paths: ['new'] })).applied, ['new']);
    assert.equal(fs.readFileSync(join(project, 'new'), 'utf8'), 'new\n');
    assert.equal(fs.readFileSync(join(project, 'old'), 'utf8'), 'old');
    const rest = await sandbox.apply();
    assert.ok(rest.applied.includes('old'));
    assert.ok(rest.refused.some(({ path, reason }) => path === '.git/hooks/pre-commit' && reason));
  });

  it('refuses what changed on the host, unless asked to overwrite', async () => {
    fs.writeFileSync(join(project, 'old'), 'edited meanwhile');
    assert.deepEqual((await sandbox.apply({ paths: ['old'] })).applied, []);
    assert.deepEqual((await sandbox.apply({ paths: ['old'], overwrite: true })).applied, ['old']);
    assert.equal(fs.readFileSync(join(project, 'old'), 'utf8'), 'changed\n');
  });

  it('is discarded with the sandbox', async () => {
    await sandbox.discard();
    await assert.rejects(sandbox.exec('true'), ClosedError);
    assert.deepEqual(fs.readdirSync(project), ['old']);
  });
});
