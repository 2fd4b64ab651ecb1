import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Sandbox } from '../src/index.mjs';
import { create, temporaryDirectory } from './programs.mjs';

describe('files', () => {
  let sandbox: Sandbox;
  let local: string;
  before(async () => {
    sandbox = await create();
    local = temporaryDirectory();
  });
  after(async () => {
    await sandbox.close();
    execFileSync('chmod', ['-R', 'u+rwx', local]);
    fs.rmSync(local, { recursive: true });
  });

  it('have times as a Date and, exactly, in nanoseconds', async () => {
    await sandbox.exec('touch -d @1700000000.123456789 /tmp/timed', { check: true });
    const { mtime, mtime_ns, kind, is_dir } = await sandbox.stat('/tmp/timed');
    assert.equal(mtime_ns, 1_700_000_000_123_456_789n);
    assert.deepEqual([mtime.toISOString(), kind, is_dir], ['2023-11-14T22:13:20.123Z', 'file', false]);
    const [listed] = (await sandbox.listFiles('/tmp')).filter(({ name }) => name === 'timed');
    assert.equal(listed?.mtime.getTime(), mtime.getTime());
  });

  it('are listed by kind, links as links', async () => {
    await sandbox.mkdir('/tmp/kinds/directory');
    await sandbox.writeFile('/tmp/kinds/file', 'x', { mode: 0o640 });
    await sandbox.symlink('file', '/tmp/kinds/link');
    await sandbox.exec('mkfifo /tmp/kinds/other');
    const kinds = Object.fromEntries((await sandbox.listFiles('/tmp/kinds')).map(({ name, kind }) => [name, kind]));
    assert.deepEqual(kinds, { directory: 'directory', file: 'file', link: 'symlink', other: 'other' });
    assert.equal(await sandbox.readlink('/tmp/kinds/link'), 'file');
    assert.equal((await sandbox.stat('/tmp/kinds/file')).mode & 0o777, 0o640);
    assert.deepEqual([await sandbox.exists('/tmp/kinds/file'), await sandbox.exists('/tmp/kinds/none')], [true, false]);
    await assert.rejects(sandbox.mkdir('/tmp/a/b/c', { parents: false }), { code: 'ENOENT' });
  });

  it('of many megabytes go in and out, several at a time', async () => {
    // Together more than the server takes at a time.
    const content = Buffer.alloc(4 * 2 ** 20 + 17, 'some bytes, again and again. ');
    const paths = Array.from({ length: 48 }, (_, at) => `/tmp/large-${at}`);
    await Promise.all(paths.map((path) => sandbox.writeFile(path, content)));
    for (const path of paths) assert.ok((await sandbox.readFile(path)).equals(content));
    await sandbox.exec('rm /tmp/large-*', { check: true });
  });

  it('travel as whole directories, with links as links and their modes', async () => {
    const from = join(local, 'from');
    fs.mkdirSync(join(from, 'sub', 'empty'), { recursive: true });
    fs.writeFileSync(join(from, 'run.sh'), '#!/bin/sh\n');
    fs.chmodSync(join(from, 'run.sh'), 0o755);
    fs.writeFileSync(join(from, 'sub', 'private'), Buffer.alloc(4 * 2 ** 20, 'x'));
    fs.chmodSync(join(from, 'sub', 'private'), 0o600);
    fs.symlinkSync('/etc/passwd', join(from, 'sub', 'outside'));
    fs.symlinkSync('nowhere', join(from, 'dangling'));
    fs.chmodSync(join(from, 'sub', 'empty'), 0o555);
    execFileSync('mkfifo', [join(from, 'pipe')]);
    fs.writeFileSync(Buffer.concat([Buffer.from(join(from, 'bad-')), Buffer.from([255])]), '');

    const { skipped } = await sandbox.upload(from, '/tmp/up');
    assert.deepEqual(skipped.map(({ path }) => path).sort(), ['/tmp/up/bad-\ufffd', '/tmp/up/pipe']);
    assert.equal(await sandbox.readlink('/tmp/up/sub/outside'), '/etc/passwd');
    assert.equal((await sandbox.exec('stat -c %a run.sh sub/private sub/empty', '/tmp/up')).stdout, '755\n600\n555\n');
    assert.deepEqual(await sandbox.upload(join(from, 'run.sh'), '/tmp/up/run.sh'), { skipped: [] });

    await sandbox.exec('mkfifo /tmp/up/pipe; touch "/tmp/up/$(printf \'bad-\\377\')"', { check: true });
    const back = await sandbox.download('/tmp/up', join(local, 'back'));
    assert.deepEqual(back.skipped.map(({ path }) => path).sort(), ['/tmp/up/bad-\ufffd', '/tmp/up/pipe']);
    assert.deepEqual(described(join(local, 'back')), described(from));
    await sandbox.download('/tmp/up', join(local, 'back')); // again, over what is there
    assert.deepEqual(described(join(local, 'back')), described(from));
  });

  it('keep modes that a umask would change, and no program inside is run for it', async () => {
    const from = join(local, 'modes');
    fs.mkdirSync(join(from, 'open'), { recursive: true });
    fs.writeFileSync(join(from, 'open', 'f'), Buffer.alloc(7 * 2 ** 20));
    fs.writeFileSync(join(from, 'g'), 'g');
    fs.chmodSync(join(from, 'open', 'f'), 0o444);
    fs.chmodSync(join(from, 'g'), 0o666);
    fs.chmodSync(join(from, 'open'), 0o577);
    fs.chmodSync(from, 0o775);
    const commands: unknown[] = [];
    const stop = sandbox.onEvent((event) => void (event.type === 'exec_start' && commands.push(event)));
    await sandbox.upload(from, '/tmp/modes');
    await sandbox.stat('/tmp/modes');
    stop();
    assert.deepEqual(commands, []);
    const modes = await Promise.all(['', '/open', '/open/f', '/g'].map(async (path) => (await sandbox.stat(`/tmp/modes${path}`)).mode));
    assert.deepEqual(modes, [0o775, 0o577, 0o444, 0o666]);
    await sandbox.chmod('/tmp/modes/g', 0o600);
    assert.equal((await sandbox.stat('/tmp/modes/g')).mode, 0o600);
    await assert.rejects(sandbox.chmod('/tmp/none', 0o600), { code: 'ENOENT' });
    fs.chmodSync(join(from, 'open'), 0o700);
  });

  it('never come out through a link, not even one that came out before', async () => {
    const host = join(local, 'host');
    fs.mkdirSync(host);
    fs.writeFileSync(join(host, 'keys'), 'mine');
    await sandbox.exec(`mkdir /tmp/trap && ln -s ${host} /tmp/trap/x && ln -s ${host}/keys /tmp/trap/y`, { check: true });
    await sandbox.download('/tmp/trap', join(local, 'trap'));
    assert.equal(fs.readlinkSync(join(local, 'trap', 'x')), host);
    await sandbox.exec('cd /tmp/trap && rm x y && mkdir x && echo theirs | tee x/keys > y', { check: true });
    await sandbox.download('/tmp/trap', join(local, 'trap'));
    assert.equal(fs.readFileSync(join(host, 'keys'), 'utf8'), 'mine');
    assert.equal(fs.readFileSync(join(local, 'trap', 'x', 'keys'), 'utf8'), 'theirs\n');
    assert.equal(fs.readFileSync(join(local, 'trap', 'y'), 'utf8'), 'theirs\n');
    assert.equal(fs.lstatSync(join(local, 'trap', 'x')).isDirectory(), true);
  });

  it('never go in through a link', async () => {
    fs.writeFileSync(join(local, 'secret'), 'secret');
    fs.symlinkSync(join(local, 'secret'), join(local, 'to-secret'));
    await sandbox.upload(join(local, 'to-secret'), '/tmp/to-secret');
    assert.equal(await sandbox.readlink('/tmp/to-secret'), join(local, 'secret'));
    await assert.rejects(sandbox.upload(join(local, 'none'), '/tmp/none'), { code: 'ENOENT' });
    await assert.rejects(sandbox.download('/tmp/none', join(local, 'none')), { code: 'ENOENT' });
  });

  it('of any size that a command claims harm nobody', async () => {
    await sandbox.exec('truncate -s 1P /tmp/hole || truncate -s 1T /tmp/hole', { check: true });
    await assert.rejects(sandbox.readFile('/tmp/hole'), { code: 'TOO_LARGE' });
    await assert.rejects(sandbox.readText('/tmp/timed', { maxBytes: -1 }), { code: 'TOO_LARGE' });
    await sandbox.exec('cd /tmp && i=0; while [ $i -lt 300 ]; do mkdir d && cd d; i=$((i+1)); done', { check: true });
    await assert.rejects(sandbox.download('/tmp/d', join(local, 'deep')), { code: 'TOO_LARGE' });
  });

  it('stay on the way when the signal is aborted', async () => {
    const controller = new AbortController();
    fs.writeFileSync(join(local, 'huge'), Buffer.alloc(64 * 2 ** 20));
    const copying = sandbox.upload(join(local, 'huge'), '/tmp/huge', { signal: controller.signal });
    controller.abort(new Error('enough'));
    await assert.rejects(copying, /enough/);
    assert.equal((await sandbox.exec('true')).exit_code, 0);
  });
});

/** Every path with its kind, mode and content. */
function described(root: string): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  const walk = (path: string) => {
    const { mode } = fs.lstatSync(join(root, path));
    const kind = mode & fs.constants.S_IFMT;
    if (kind === fs.constants.S_IFDIR) {
      found[path] = mode;
      for (const name of fs.readdirSync(join(root, path))) walk(join(path, name));
    } else if (kind === fs.constants.S_IFLNK) {
      found[path] = fs.readlinkSync(join(root, path));
    } else if (kind === fs.constants.S_IFREG) {
      found[path] = [mode, fs.readFileSync(join(root, path), 'latin1').length];
    }
  };
  for (const name of fs.readdirSync(root)) if (!name.startsWith('bad-') && name !== 'pipe') walk(name);
  return found;
}
