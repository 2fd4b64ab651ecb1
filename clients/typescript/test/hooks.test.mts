import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { ConfigError, Sandbox, type Hooks, type HttpRequest } from '../src/index.mjs';
import { create } from './programs.mjs';

describe('a hook on requests', () => {
  let origin: Server;
  const received: string[] = [];
  before(async () => {
    origin = createServer(async (request, response) => {
      let body = '';
      for await (const piece of request) body += String(piece);
      received.push(`${request.method} ${request.url} [${body}]`);
      response.end('the answer');
    });
    await new Promise<void>((resolve) => origin.listen(0, '127.0.0.1', resolve));
  });
  after(() => origin.close());

  /** Sends "secret" from inside and returns what came back. Every request is led to the server of this test. */
  async function send(hooks: Hooks): Promise<string> {
    received.length = 0;
    const { port } = origin.address() as AddressInfo;
    const own = hooks.onRequest?.bind(hooks);
    const redirected: Hooks = {
      ...hooks,
      async onRequest(request) {
        const changed = own ? await own(request) : request;
        return changed && { ...changed, url: `http://127.0.0.1:${port}/` };
      },
    };
    await using sandbox = await create({ network: { allowed_hosts: ['api.test', '127.0.0.1'] } }, { hooks: redirected });
    return (await sandbox.exec(['curl', '-sS', '-d', 'secret', 'http://api.test/'])).stdout;
  }

  it('may empty the body of a request', async () => {
    assert.equal(await send({ onRequest: (request) => ({ ...request, body: Buffer.alloc(0) }) }), 'the answer');
    assert.deepEqual(received, ['POST / []']);
  });

  it('may replace the body, and leaves it alone when it returns no body', async () => {
    await send({ onRequest: (request) => ({ ...request, body: Buffer.from('less') }) });
    assert.deepEqual(received, ['POST / [less]']);
    await send({ onRequest: () => ({}) });
    assert.deepEqual(received, ['POST / [secret]']);
  });

  it('may empty the body of a response', async () => {
    assert.equal(await send({ onResponse: (response) => ({ ...response, body: Buffer.alloc(0) }) }), '');
  });

  it('may do without bodies, which then pass unchanged', async () => {
    let seen: HttpRequest | undefined;
    const answer = await send({ withoutBodies: true, onRequest: (request) => (seen = request), onResponse: (response) => response });
    assert.equal(seen?.body, undefined);
    assert.equal(answer, 'the answer');
    assert.deepEqual(received, ['POST / [secret]']);
  });

  it('refuses by null, by throwing and by returning nothing', async () => {
    assert.match(await send({ onRequest: () => null }), /on_request/);
    assert.match(await send({ onRequest: () => assert.fail('only on weekdays') }), /only on weekdays/);
    assert.match(await send({ onRequest: (() => undefined) as never }), /must return the request or null/);
    assert.match(await send({ onResponse: () => null }), /on_response/);
    assert.equal(received.length, 1);
  });
});

describe('a hook on files', () => {
  const config = { vfs: { mounts: { '/workspace': { type: 'memory' as const } } } };

  it('is asked before and after every operation', async () => {
    const operations = [
      'stat', 'readdir', 'readlink', 'remove', 'listxattr', 'open', 'create', 'mkdir', 'read', 'write', 'sync', 'close',
      'rename', 'link', 'symlink', 'setattr', 'getxattr', 'setxattr', 'removexattr', 'mknod',
    ];
    const seen = new Map<string, unknown[]>();
    const names = operations.flatMap((name) => ['before', 'after'].map((when) => when + name[0]!.toUpperCase() + name.slice(1)));
    const hooks = Object.fromEntries(names.map((name) => [name, (...args: unknown[]) => void seen.set(name, args)])) as Hooks;
    await using sandbox = await create(config, { hooks });
    const script = `
import os
os.chdir("/workspace")
os.mkdir("d"); os.listdir("."); os.mkfifo("fifo")
with open("a", "w") as file: file.write("four"); file.flush(); os.fsync(file)
with open("a") as file: file.read()
os.chmod("a", 0o600); os.link("a", "b"); os.symlink("a", "l"); os.readlink("l"); os.rename("b", "c"); os.remove("c")
os.setxattr("a", "user.x", b"1"); os.getxattr("a", "user.x"); os.listxattr("a"); os.removexattr("a", "user.x")
`;
    await sandbox.exec(['/usr/bin/python3', '-c', script], { check: true });
    assert.deepEqual(names.filter((name) => !seen.has(name)), []);
    assert.deepEqual(seen.get('afterWrite'), ['/workspace/a', 4]);
    assert.deepEqual(seen.get('beforeRename'), ['/workspace/b', '/workspace/c']);
    assert.deepEqual(seen.get('beforeSetxattr'), ['/workspace/a', 'user.x']);
  });

  it('keeps a file from being made as well as from being opened', async () => {
    const guard = (path: string) => {
      if (path.endsWith('.key')) throw new Error('keys stay outside');
    };
    await using sandbox = await create(config, { hooks: { beforeOpen: guard, beforeCreate: guard } });
    assert.notEqual((await sandbox.exec('echo x > /workspace/a.key')).exit_code, 0);
    assert.equal(await sandbox.exists('/workspace/a.key'), false);
    assert.equal((await sandbox.exec('echo x > /workspace/a.txt')).exit_code, 0);
  });

  it('may use the sandbox itself', async () => {
    let sandbox!: Sandbox;
    const hooks: Hooks = { beforeRemove: async () => void (await sandbox.writeFile('/tmp/noticed', 'yes')) };
    sandbox = await create(config, { hooks });
    await sandbox.exec('touch /workspace/x; rm /workspace/x', { check: true });
    assert.equal(await sandbox.readText('/tmp/noticed'), 'yes');
    await sandbox.close();
  });
});

describe('a hook that does not exist', () => {
  const cases: [string, object, RegExp][] = [
    ['misspelt', { beforeOpn() {} }, /beforeOpn.*did you mean beforeOpen/],
    ['in the spelling of Python', { before_open() {} }, /before_open.*did you mean beforeOpen/],
    ['not a function', { onRequest: true }, /hooks\.onRequest: must be a function/],
    ['a misspelt option', { onRequest: () => null, withoutBodys: true }, /withoutBodys/],
    ['a list', [() => null], /must be an object/],
    ['in a class', new (class { beforeWrite() {} onRequst() {} })(), /onRequst.*did you mean onRequest/],
  ];
  for (const [what, hooks, message] of cases) {
    it(`is an error: ${what}`, async () => {
      await assert.rejects(create({}, { hooks: hooks as Hooks }), (problem) => {
        assert.ok(problem instanceof ConfigError);
        assert.match(problem.message, message);
        return true;
      });
    });
  }

  it('is an error when it is in the wrong place', async () => {
    const hooks = { onRequest: () => null };
    await assert.rejects(create({ hooks } as object), ConfigError);
    await assert.rejects(create({}, { hook: hooks } as object), /unknown option "hook"/);
    await assert.rejects(create({ network: hooks } as object), TypeError);
  });

  it('does not mean the other members of a class', async () => {
    class Guard {
      readonly seen: string[] = [];
      beforeCreate(path: string) {
        this.note(path);
      }
      note(path: string) {
        this.seen.push(path);
      }
    }
    const guard = new Guard();
    await using sandbox = await create({ vfs: { mounts: { '/workspace': { type: 'memory' } } } }, { hooks: guard });
    await sandbox.exec('touch /workspace/x');
    assert.deepEqual(guard.seen, ['/workspace/x']);
  });
});
