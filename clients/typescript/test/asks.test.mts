import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { SandboxError, type Ask, type Hooks } from '../src/index.mjs';
import { create } from './programs.mjs';

describe('a question to the owner', () => {
  let proxy: Server;
  let tried = 0;
  // Whatever is allowed goes to this stand-in for a proxy, which counts and refuses.
  before(async () => {
    proxy = createServer().on('connect', (_request, socket) => {
      tried += 1;
      socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n');
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  });
  after(() => proxy.close());

  const network = () => ({ ask: true, upstream_proxy: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}` });

  async function reach(hooks: Hooks): Promise<{ said: string; allowed: boolean }> {
    tried = 0;
    await using sandbox = await create({ network: network() }, { hooks });
    const said = (await sandbox.exec(['curl', '-sS', 'http://api.test/x'])).stdout;
    return { said, allowed: tried > 0 };
  }

  it('is answered by onAsk, also later', async () => {
    let seen: Ask | undefined;
    const { allowed } = await reach({
      async onAsk(ask) {
        seen = ask;
        await new Promise((resolve) => setImmediate(resolve));
        return 'once' as const;
      },
    });
    assert.ok(allowed);
    assert.deepEqual([seen?.kind, seen?.host, seen?.port, seen?.method, seen?.path], ['host', 'api.test', 80, 'GET', '/x']);
    assert.equal(seen?.program, 'curl');
  });

  it('is denied by a hook that says so, throws, or answers nonsense', async () => {
    const hooks: Hooks[] = [
      { onAsk: () => 'deny' },
      { onAsk: () => { throw new Error('no'); } },
      { onAsk: () => Promise.reject(new Error('no')) },
      { onAsk: () => true as never },
    ];
    for (const one of hooks) {
      const { said, allowed } = await reach(one);
      assert.match(said, /its owner was asked and denied it/);
      assert.ok(!allowed);
    }
  });

  it('is left to others by a hook that returns nothing, and nobody else is there', async () => {
    assert.match((await reach({ onAsk: () => undefined })).said, /nobody was there to answer/);
  });

  it('is answered by a program that watches', async () => {
    tried = 0;
    await using sandbox = await create({ network: network() });
    assert.deepEqual(await sandbox.asks({ watch: true }), []);
    const answered: string[] = [];
    sandbox.onEvent(async (event) => {
      if (event.type !== 'ask') return;
      answered.push(event.ask.state);
      if (event.ask.state !== 'waiting') return;
      assert.deepEqual((await sandbox.asks()).map((ask) => ask.id), [event.ask.id]);
      await sandbox.answer(event.ask.id, 'sandbox');
    });
    await sandbox.exec(['curl', '-sS', 'http://api.test/']);
    assert.equal(tried, 1);
    assert.deepEqual(answered, ['waiting', 'allowed']);
    await assert.rejects(sandbox.answer(1_000_000, 'once'), SandboxError);
  });
});
