import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { getSandbox, Sandbox } from '../src/index.mjs';
import { create } from './programs.mjs';

/** Answers each connection with what it was sent, in capitals, when the other side has said all. */
const SERVER = `
import socket
listener = socket.create_server(("127.0.0.1", 8000))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as file:
        connection.sendall(file.read().upper())
`;

const ANSWERS_LATE = `
import socket
listener = socket.create_server(("127.0.0.1", 5006))
print("up", flush=True)
line, _ = listener.accept()
line.sendall(b"all of it")
line.shutdown(socket.SHUT_WR)
print("heard", b"".join(iter(lambda: line.recv(65536), b"")).decode(), flush=True)
`;

/** What comes until the other side has sent everything; the stream stays open. */
async function readToEnd(stream: Duplex): Promise<string> {
  const pieces: Buffer[] = [];
  stream.on('data', (piece: Buffer) => pieces.push(piece));
  await once(stream, 'end');
  return Buffer.concat(pieces).toString();
}

async function serving(sandbox: Sandbox): Promise<void> {
  const server = await sandbox.spawn(['/usr/bin/python3', '-c', SERVER]);
  for await (const { data } of server) if (data.includes('listening')) break;
}

describe('the network', () => {
  it('is dialled inwards as a stream', async () => {
    await using sandbox = await create();
    await serving(sandbox);
    const stream = await sandbox.dial(8000);
    const sent = Buffer.alloc(3 * 2 ** 20, 'hello ');
    stream.end(sent);
    assert.ok((await text(stream)) === sent.toString().toUpperCase());
    await assert.rejects(sandbox.dial(8001), { code: 'ECONNREFUSED' });
    (await sandbox.dial(8000)).destroy();
    assert.equal((await sandbox.exec('true')).exit_code, 0);
  });

  it('carries the end of each direction by itself', async () => {
    await using sandbox = await create();
    const server = await sandbox.spawn(['/usr/bin/python3', '-c', ANSWERS_LATE]);
    for await (const { data } of server) if (data.includes('up')) break;
    const stream = await sandbox.dial(5006, { allowHalfOpen: true });
    assert.equal(await readToEnd(stream), 'all of it');
    stream.end('thanks');
    assert.match((await server.wait()).stdout, /heard thanks\n$/);
    if (!stream.closed) await once(stream, 'close');
    await assert.rejects(sandbox.dial(5006, { halfOpen: true } as object), TypeError);
  });

  it('has published ports, whose numbers are known', async () => {
    await using sandbox = await create({ network: { publish: ['0:8000'] } });
    await serving(sandbox);
    const [published] = sandbox.ports;
    assert.equal(published?.inside, 8000);
    assert.ok(published.port > 0);
    const socket = connect(published.port, published.address);
    await once(socket, 'connect');
    socket.end('hello');
    assert.equal(await text(socket), 'HELLO');
    assert.deepEqual((await getSandbox(sandbox.id)).ports, sandbox.ports);
  });

  it('is changed while the sandbox runs', async () => {
    const server = createServer((_, response) => response.end('reached'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      const { port } = server.address() as AddressInfo;
      await using sandbox = await create();
      const read = ['curl', '-sS', `http://host.sandbox.internal:${port}/`];
      assert.match((await sandbox.exec(read)).stdout, /Blocked/);
      await sandbox.updateNetwork({ localhost_ports: [port] });
      assert.equal((await sandbox.exec(read)).stdout, 'reached');
    } finally {
      server.close();
    }
  });
});
