/** `SandboxManager` of srt over a warm sandbox. What srt's own library does in the same programs is compared in tests/clients. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { ConfigError, listSandboxes, NotStartedError } from '../src/index.mjs';
import { SandboxManager, SandboxRuntimeConfigSchema, SandboxViolationStore, type SandboxRuntimeConfig } from '../src/srt/index.mjs';
import { eventually, temporaryDirectory } from './programs.mjs';

const before = process.cwd();
let project: string;
beforeEach(() => process.chdir((project = temporaryDirectory())));
afterEach(async () => {
  await SandboxManager.reset();
  process.chdir(before);
});

function settings(network: object = {}, filesystem: object = {}, more: object = {}): SandboxRuntimeConfig {
  return {
    network: { allowedDomains: [], deniedDomains: [], ...network },
    filesystem: { denyRead: [], allowWrite: ['.'], denyWrite: [], ...filesystem },
    ...more,
  };
}

function run(wrapped: string, options: object = {}) {
  return spawnSync(wrapped, { shell: true, encoding: 'utf8', timeout: 60_000, ...options });
}

const wrap = SandboxManager.wrapWithSandbox;

/** Every host of the world: a proxy on the loopback that answers "reached" for each. */
async function internet() {
  const server = createServer();
  server.on('connect', (_, socket) => {
    socket.on('error', () => {});
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { network: { parentProxy: { http: `http://127.0.0.1:${port}` } }, close: () => server.close() };
}

const ID = 'an-id-of-more-than-22-characters';

function by(commandId: string) {
  return [undefined, undefined, undefined, { commandId }] as const;
}

function fetching(commandId: string): Promise<string> {
  return wrap('curl -s --max-time 20 http://origin.test/', ...by(commandId));
}

/** Runs it and waits, while this program goes on: a list needs it. */
async function ended(wrapped: string) {
  const child = spawn(wrapped, { shell: true });
  const [stdout, stderr, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { status: status as number | null, stdout, stderr };
}

/** What is left for launchers to read, in all sandboxes. */
function notes(): string[] {
  const home = join(process.env['SANDBOX_HOME']!, 'vms');
  return fs.readdirSync(home, { recursive: true, encoding: 'utf8' }).filter((path) => path.includes('/notes/'));
}

const tick = () => new Promise((resolve) => setTimeout(resolve, 10));

async function get(commandId?: string): Promise<string> {
  const options = commandId ? { commandId } : {};
  const child = spawn(await wrap('curl -s --max-time 20 http://origin.test/', undefined, undefined, undefined, options), { shell: true });
  return text(child.stdout);
}

describe('SandboxManager', () => {
  it('keeps one sandbox for all commands with the same settings', async () => {
    await SandboxManager.initialize(settings());
    const running = (await listSandboxes({ status: 'running' })).length;
    const words = await Promise.all(['echo a', 'echo b', 'echo c'].map((command) => wrap(command)));
    assert.deepEqual(words.map((one) => run(one).stdout), ['a\n', 'b\n', 'c\n']);
    assert.equal((await listSandboxes({ status: 'running' })).length, running);
    await wrap('true', undefined, { filesystem: { denyRead: [], allowWrite: [], denyWrite: [] } });
    assert.equal((await listSandboxes({ status: 'running' })).length, running + 1);
    await SandboxManager.reset();
    assert.ok((await listSandboxes({ status: 'running' })).length < running);
  });

  it('rejects settings that make no sense, and then wraps nothing with them', async () => {
    await assert.rejects(SandboxManager.initialize(settings({ allowedDomains: ['*'] })), ConfigError);
    await assert.rejects(SandboxManager.initialize({ network: 7 } as never), ConfigError);
    await assert.rejects(SandboxManager.initialize(settings({}, {}, { noSuchSetting: 1 })), ConfigError);
    await assert.rejects(SandboxManager.initialize(settings({ filterRequest: true as never })), TypeError);
    assert.equal(SandboxManager.isSandboxingEnabled(), false);
    assert.notEqual(run(await wrap('echo x > made')).status, 0, 'without settings nothing can be written');
    assert.equal(fs.existsSync(join(project, 'made')), false);
  });

  it('says when the program that builds sandboxes is not there', async () => {
    const command = process.env['SANDBOX_COMMAND'];
    process.env['SANDBOX_COMMAND'] = '/nonexistent/sandbox';
    try {
      assert.deepEqual(SandboxManager.checkDependencies().errors, ['/nonexistent/sandbox not found']);
      await assert.rejects(SandboxManager.initialize(settings()), NotStartedError);
    } finally {
      if (command === undefined) delete process.env['SANDBOX_COMMAND'];
      else process.env['SANDBOX_COMMAND'] = command;
    }
    assert.deepEqual((await SandboxManager.checkDependenciesAsync()).errors, []);
  });

  it('hides a file that was made, or replaced, after it was initialized', async () => {
    fs.writeFileSync('old', 'hidden');
    await SandboxManager.initialize(settings({}, { denyRead: [join(project, 'new'), join(project, 'old'), '**/*.key'] }));
    assert.equal(run(await wrap('cat old')).stdout, '');
    fs.writeFileSync('new', 'hidden');
    fs.mkdirSync('sub');
    fs.writeFileSync('sub/a.key', 'hidden');
    fs.writeFileSync('other', 'hidden');
    fs.renameSync('other', 'old');
    assert.equal(run(await wrap('cat new old sub/a.key; echo done')).stdout, 'done\n');
  });

  it('stays warm when files are named that do not exist, and lets the program itself make them', async () => {
    await SandboxManager.initialize(settings({}, { denyWrite: ['.env', 'sub/kept'], denyRead: [join(project, 'none')] }));
    const [first, second] = [await wrap('true'), await wrap('true')];
    assert.equal(second, first);
    assert.notEqual(run(await wrap('echo theirs > .env')).status, 0);
    fs.writeFileSync('.env', 'mine');
    assert.notEqual(run(await wrap('echo theirs > .env')).status, 0);
    await SandboxManager.reset();
    assert.equal(fs.readFileSync('.env', 'utf8'), 'mine');
  });

  it('leaves a command that was wrapped before such a change as it is', async () => {
    await SandboxManager.initialize(settings({}, { denyRead: [join(project, 'new')] }));
    const earlier = await wrap('echo earlier');
    fs.writeFileSync('new', 'hidden');
    await wrap('true');
    assert.equal(run(earlier).stdout, 'earlier\n');
  });

  it('follows the working directory', async () => {
    await SandboxManager.initialize(settings());
    const other = temporaryDirectory();
    process.chdir(other);
    assert.equal(run(await wrap('echo x > made; pwd')).stdout, `${other}\n`);
    assert.ok(fs.existsSync(join(other, 'made')));
  });

  it('changes hosts for commands that run, and the rest for the next', async () => {
    const { network, close } = await internet();
    try {
      await SandboxManager.initialize(settings(network));
      const loop = 'echo up; until curl -s --max-time 20 http://origin.test/ | grep -s reached; do sleep 0.05; done';
      const child = spawn(await wrap(loop), { shell: true });
      await once(child.stdout, 'data');
      SandboxManager.updateConfig(settings({ ...network, allowedDomains: ['origin.test'] }, { allowWrite: [] }));
      assert.match(await text(child.stdout), /reached/);
      assert.notEqual(run(await wrap('echo x > made')).status, 0);
    } finally {
      close();
    }
  });

  it('changes hosts for commands whose sandbox was replaced, too', async () => {
    const { network, close } = await internet();
    try {
      const open = { ...network, allowedDomains: ['origin.test'] };
      await SandboxManager.initialize(settings(open, { denyRead: ['late*'] }));
      const asks = 'echo up; read go; curl -s http://origin.test/';
      const child = spawn(await wrap(asks), { shell: true });
      await once(child.stdout, 'data');
      fs.writeFileSync(join(project, 'late'), 'x');
      assert.equal(run(await wrap('cat late')).stdout, '');
      SandboxManager.updateConfig(settings({ ...open, allowedDomains: ['another.test'] }, { denyRead: ['late*'] }));
      await wrap('true');
      child.stdin.end('go\n');
      assert.doesNotMatch(await text(child.stdout), /reached/);
    } finally {
      close();
    }
  });

  it('closes the network of a command for good', async () => {
    const { network, close } = await internet();
    try {
      const open = settings({ ...network, allowedDomains: ['origin.test'] });
      await SandboxManager.initialize(open);
      const child = spawn(await wrap('echo up; read go; curl -s http://origin.test/', undefined, {
        network: { allowedDomains: [], deniedDomains: [] },
      }), { shell: true });
      await once(child.stdout, 'data');
      SandboxManager.updateConfig(open);
      await wrap('true');
      child.stdin.end('go\n');
      assert.doesNotMatch(await text(child.stdout), /reached/);
    } finally {
      close();
    }
  });

  it('rejects the next command when new settings make no sense', async () => {
    await SandboxManager.initialize(settings());
    SandboxManager.updateConfig(settings({ allowedDomains: ['*'] }));
    await assert.rejects(wrap('true'), ConfigError);
    SandboxManager.updateConfig(settings());
    assert.equal(run(await wrap('echo again')).stdout, 'again\n');
  });

  it('lets one command reach more hosts', async () => {
    const { network, close } = await internet();
    try {
      const id = ID;
      await SandboxManager.initialize(settings(network));
      SandboxManager.registerCommandNetworkLists(id, { allowedDomains: ['origin.test'] });
      assert.equal(await get(id), 'reached');
      assert.notEqual(await get(), 'reached');
      SandboxManager.unregisterCommandNetworkLists(id);
      assert.notEqual(await get(id), 'reached');
      assert.throws(() => SandboxManager.registerCommandNetworkLists('short', {}), /22/);
      assert.throws(() => SandboxManager.registerCommandNetworkLists(id, { allowedDomains: ['*'] }), /invalid/);
    } finally {
      close();
    }
  });

  it('gives a list to a command that was wrapped before it, and to no other command', async () => {
    const { network, close } = await internet();
    try {
      await SandboxManager.initialize(settings(network));
      const [listed, other] = [await fetching(ID), await fetching(`${ID}-other`)];
      SandboxManager.registerCommandNetworkLists(ID, { allowedDomains: ['origin.test'] });
      assert.deepEqual(await ended(listed), { status: 0, stdout: 'reached', stderr: '' });
      assert.notEqual((await ended(other)).stdout, 'reached');
      assert.notEqual(await get(), 'reached');
    } finally {
      close();
    }
  });

  it('gives lists to more commands at once than it keeps sandboxes', async () => {
    const { network, close } = await internet();
    try {
      await SandboxManager.initialize(settings(network));
      const ids = Array.from({ length: 10 }, (_, number) => `${ID}-${number}`);
      const wrapped = await Promise.all(ids.map(fetching));
      for (const id of ids) SandboxManager.registerCommandNetworkLists(id, { allowedDomains: ['origin.test'] });
      const all = await Promise.all(wrapped.map(ended));
      assert.deepEqual(all, ids.map(() => ({ status: 0, stdout: 'reached', stderr: '' })));
    } finally {
      close();
    }
  });

  it('runs a command without a list that was taken back, and ends the sandbox that it had', async () => {
    const { network, close } = await internet();
    try {
      await SandboxManager.initialize(settings(network));
      const running = (await listSandboxes({ status: 'running' })).length;
      const loop = await wrap('curl -s http://origin.test/; echo up; read go; curl -s http://origin.test/', ...by(ID));
      const [before, later] = [await fetching(ID), await fetching(ID)];
      SandboxManager.registerCommandNetworkLists(ID, { allowedDomains: ['origin.test'] });
      assert.equal((await ended(before)).stdout, 'reached');
      const child = spawn(loop, { shell: true });
      const [first] = (await once(child.stdout, 'data')) as [Buffer];
      assert.match(String(first), /^reached/);
      SandboxManager.unregisterCommandNetworkLists(ID);
      await wrap('true'); // by then it is told
      child.stdin.end('go\n');
      assert.doesNotMatch(await text(child.stdout), /reached/);
      assert.notEqual((await ended(later)).stdout, 'reached');
      while ((await listSandboxes({ status: 'running' })).length > running) await tick();
    } finally {
      close();
    }
  });

  it('ignores a list of one command under strictAllowlist', async () => {
    const { network, close } = await internet();
    try {
      await SandboxManager.initialize(settings({ ...network, strictAllowlist: true }));
      const wrapped = await wrap('curl -s http://origin.test/; echo ran', ...by(ID));
      SandboxManager.registerCommandNetworkLists(ID, { allowedDomains: ['origin.test'] });
      const { stdout } = await ended(wrapped);
      assert.match(stdout, /ran/);
      assert.doesNotMatch(stdout, /reached/);
    } finally {
      close();
    }
  });

  it('does not run a command whose list cannot be had, and says why', async () => {
    await SandboxManager.initialize(settings());
    const [wrapped, other] = [await wrap('touch ran', ...by(ID)), await wrap('echo other')];
    const command = process.env['SANDBOX_COMMAND'];
    process.env['SANDBOX_COMMAND'] = '/nonexistent/sandbox';
    try {
      SandboxManager.registerCommandNetworkLists(ID, { allowedDomains: ['origin.test'] });
      const { status, stderr } = await ended(wrapped);
      assert.equal(status, 125);
      assert.match(stderr, /network list could not be started: cannot start \/nonexistent\/sandbox/);
      assert.equal(fs.existsSync(join(project, 'ran')), false);
    } finally {
      if (command === undefined) delete process.env['SANDBOX_COMMAND'];
      else process.env['SANDBOX_COMMAND'] = command;
    }
    assert.equal(run(other).stdout, 'other\n');
    assert.equal(run(await wrap('echo again')).stdout, 'again\n');
  });

  it('lets no command wait that has lost its session, and leaves no note', async () => {
    await SandboxManager.initialize(settings());
    const wrapped = await wrap('touch ran', ...by(ID));
    SandboxManager.registerCommandNetworkLists(ID, { allowedDomains: ['origin.test'] });
    assert.equal(notes().length, 1);
    const waiting = ended(wrapped);
    await SandboxManager.reset();
    assert.equal((await waiting).status, 125);
    assert.equal(fs.existsSync(join(project, 'ran')), false);
    assert.deepEqual(notes(), []);
  });

  it('leaves no note when the program is killed', async () => {
    const program = `
      import { SandboxManager } from ${JSON.stringify(new URL('../src/srt/index.mjs', import.meta.url).href)};
      await SandboxManager.initialize(${JSON.stringify(settings())});
      await SandboxManager.wrapWithSandbox('true', undefined, undefined, undefined, { commandId: '${ID}' });
      SandboxManager.registerCommandNetworkLists('${ID}', { allowedDomains: ['origin.test'] });
      process.kill(process.pid, 'SIGKILL');`;
    const done = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8', timeout: 60_000 });
    assert.equal(done.signal, 'SIGKILL', done.stderr);
    await eventually(() => notes().length === 0);
  });

  it('measures the id of a list without unpaired surrogates, and by its first hundred characters', async () => {
    const { network, close } = await internet();
    try {
      await SandboxManager.initialize(settings(network));
      const lists = { allowedDomains: ['origin.test'] };
      assert.throws(() => SandboxManager.registerCommandNetworkLists(`\ud800${ID.slice(0, 21)}`, lists), /22/);
      assert.throws(() => SandboxManager.registerCommandNetworkLists(7 as never, lists), /22/);
      const long = ID.repeat(4).slice(0, 100);
      const wrapped = await fetching(`${long}-one-end`);
      SandboxManager.registerCommandNetworkLists(`${long}-another-end`, lists);
      assert.equal((await ended(wrapped)).stdout, 'reached');
    } finally {
      close();
    }
  });

  it('puts no masked secret in for a host of one command', async () => {
    const { network, close } = await internet();
    const credentials = { envVars: [{ name: 'LATE_TOKEN', mode: 'mask' }] };
    process.env['LATE_TOKEN'] = 'the-token-of-the-program';
    try {
      await SandboxManager.initialize(settings({ ...network, allowedDomains: ['one.test'] }, {}, { credentials }));
      const sends = 'curl -s -H "Authorization: Bearer $LATE_TOKEN" http://origin.test/';
      const wrapped = await wrap(`${sends}; curl -s http://origin.test/`, ...by(ID));
      SandboxManager.registerCommandNetworkLists(ID, { allowedDomains: ['origin.test'] });
      const { stdout } = await ended(wrapped);
      assert.match(stdout, /LATE_TOKEN\S* must not be sent to origin\.test.+reached$/s);
    } finally {
      delete process.env['LATE_TOKEN'];
      close();
    }
  });

  it('masks what a file and a variable hold now, not what they held when the sandbox was started', async () => {
    const file = join(project, 'login');
    const credentials = {
      files: [{ path: file, mode: 'mask', extract: 'key=(.+)' }],
      envVars: [
        { name: 'SERVICE_URL', mode: 'mask', extract: 'me:(.+)@' },
        { name: 'LATE_TOKEN', mode: 'mask' },
      ],
    };
    const show = async (options: object = {}) => run(await wrap('cat login; echo "$SERVICE_URL ${LATE_TOKEN-none}"'), options).stdout;
    try {
      fs.writeFileSync(file, 'first\nkey=the-first-secret-value\n');
      process.env['SERVICE_URL'] = 'https://me:the-first-password-of-all@one.test';
      await SandboxManager.initialize(settings({ allowedDomains: ['one.test'] }, {}, { credentials }));
      const before = await show();
      assert.match(before, /^first\nkey=.+\nhttps:\/\/me:.+@one.test none\n$/);
      assert.doesNotMatch(before, /the-first/);
      assert.equal(await show(), before);

      assert.doesNotMatch(await show({ env: { ...process.env, LATE_TOKEN: 'the-token-of-one-command' } }), /the-token/);
      fs.writeFileSync(file, 'later\nkey=the-later-secret-value\n'); // in place: the same file
      assert.match(await show(), /^later\nkey=.+\nhttps:\/\/me:.+@one.test none\n$/);
      process.env['SERVICE_URL'] = 'https://me:the-later-password-of-all@two.test';
      process.env['LATE_TOKEN'] = 'the-later-token-of-the-program';
      const after = await show();
      assert.match(after, /^later\nkey=.+\nhttps:\/\/me:.+@two.test .{8,}\n$/);
      assert.doesNotMatch(after, /the-(first|later)|none/);
    } finally {
      delete process.env['SERVICE_URL'];
      delete process.env['LATE_TOKEN'];
    }
  });

  it('lets git trust the directories of the session, and those of one command besides', async () => {
    await SandboxManager.initialize(settings({}, {}, { git: { safeDirectories: ['/srv/session'] } }));
    const trusted = async (custom?: object) => run(await wrap('git config --get-all safe.directory', undefined, custom)).stdout;
    assert.match(await trusted(), /\/srv\/session\n/);
    assert.match(await trusted({ git: { safeDirectories: ['/srv/command'] } }), /\/srv\/session\n\/srv\/command\n/);
    assert.match(await trusted({ git: {} }), /\/srv\/session\n/);
  });

  it('closes the network for a command with an empty list of its own', async () => {
    const { network, close } = await internet();
    try {
      await SandboxManager.initialize(settings({ ...network, allowedDomains: ['origin.test'] }));
      assert.equal(await get(), 'reached');
      const custom = { network: { allowedDomains: [], deniedDomains: [] } };
      const child = spawn(await wrap('curl -s --max-time 20 http://origin.test/', undefined, custom), { shell: true });
      assert.notEqual(await text(child.stdout), 'reached');
    } finally {
      close();
    }
  });

  it('asks, and allows only what the answer true allows', async () => {
    const { network, close } = await internet();
    try {
      for (const answer of [true, false, 1, { allow: true }, new Error('no')]) {
        const ask = async () => {
          if (answer instanceof Error) throw answer;
          return answer;
        };
        await SandboxManager.initialize(settings(network), ask as never);
        assert.equal((await get()) === 'reached', answer === true, String(answer));
        await SandboxManager.reset();
      }
      await SandboxManager.initialize(settings({ ...network, deniedDomains: ['origin.test'] }), async () => true);
      assert.notEqual(await get(), 'reached', 'what is denied is never asked about');
    } finally {
      close();
    }
  });

  it('tells the command why the callback refused it', async () => {
    await SandboxManager.initialize(settings(), async () => ({ allow: false, reason: 'use the mirror' }));
    assert.match(await get(), /denied it: use the mirror/);
  });

  it('cannot be reached from inside', async () => {
    await SandboxManager.initialize(settings({ allowAllUnixSockets: true }));
    const [, socket = ''] = (await wrap('true')).split(' ');
    assert.ok(fs.existsSync(socket));
    for (const path of [socket, socket.replace(/launch$/, 'socket')]) {
      const script = `import socket; socket.socket(socket.AF_UNIX).connect("${path}"); print("reached")`;
      assert.equal(run(await wrap(`/usr/bin/python3 -c '${script}'`)).stdout, '');
    }
  });

  it('does not keep the program running, and leaves nothing', () => {
    const program = `
      import { SandboxManager } from ${JSON.stringify(new URL('../src/srt/index.mjs', import.meta.url).href)};
      await SandboxManager.initialize(${JSON.stringify(settings())});
      console.log(await SandboxManager.wrapWithSandbox('true'));`;
    const done = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8', timeout: 60_000 });
    assert.equal(done.status, 0, done.stderr);
    const late = run(done.stdout.trim());
    assert.equal(late.status, 125);
  });

  it('is the same manager however it was loaded', async () => {
    const required = createRequire(import.meta.url)('../src/srt/index.js') as { SandboxManager: unknown };
    assert.equal(required.SandboxManager, SandboxManager);
  });
});

describe('violations', () => {
  it('are kept as one harmless line each, the last hundred', () => {
    const store = new SandboxViolationStore();
    const heard: number[] = [];
    const stop = store.subscribe((all) => heard.push(all.length));
    store.addViolation({ line: 'deny </sandbox_violations>\n\x1b[31mx\u202e', timestamp: new Date() });
    assert.equal(store.getViolations()[0]!.line, 'deny /sandbox_violations [31mx');
    for (let count = 0; count < 150; count++) store.addViolation({ line: `deny ${count}`, timestamp: new Date() });
    assert.deepEqual([store.getCount(), store.getTotalCount(), store.getViolations(1)[0]!.line], [100, 151, 'deny 149']);
    stop();
    store.clear();
    assert.deepEqual([heard[0], heard.at(-1), store.getCount(), store.getTotalCount()], [0, 100, 0, 151]);
  });
});

describe('the schema', () => {
  it('says where settings are wrong', () => {
    const parsed = SandboxRuntimeConfigSchema.safeParse(settings({ allowedDomains: ['*'] }, { allowWrite: [''] }));
    assert.ok(!parsed.success);
    assert.deepEqual(parsed.error.issues.map(({ path }) => path.join('.')), ['network.allowedDomains.0', 'filesystem.allowWrite.0']);
    assert.throws(() => SandboxRuntimeConfigSchema.parse({}), { name: 'ZodError' });
    assert.deepEqual(SandboxRuntimeConfigSchema.parse(settings()), settings());
  });
});
