// A server that is not what it says: whatever it does, the program that asked it goes on.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { describe, it } from 'node:test';
import { ClosedError, DeniedError, Sandbox, SandboxError } from '../src/index.mjs';

const frame = (content: Buffer): Buffer => {
  const head = Buffer.alloc(10);
  head[0] = 0x82;
  head[1] = 127;
  head.writeBigUInt64BE(BigInt(content.length), 2);
  return Buffer.concat([head, content]);
};

/** Writes it again and again, for as long as the other side takes it. */
function flood(socket: Socket, piece: Buffer): void {
  const more = (): void => {
    while (!socket.destroyed && socket.write(piece));
  };
  socket.on('drain', more);
  more();
}

/** The answer of a server that speaks WebSocket. */
function accepting(key: string | undefined): string {
  const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
  const head = ['HTTP/1.1 101 .', 'Upgrade: websocket', 'Connection: Upgrade', `Sec-WebSocket-Accept: ${accept}`];
  return `${head.join('\r\n')}\r\n\r\n`;
}

/** What connecting to a server says that speaks WebSocket and then does `then`. */
async function connecting(then: (socket: Socket) => void): Promise<unknown> {
  const server = createServer();
  server.on('upgrade', (request, socket) => {
    socket.write(accepting(request.headers['sec-websocket-key']));
    socket.on('data', (data: Buffer) => data[0] === 0x88 && socket.end()); // it leaves
    then(socket as Socket);
  });
  return asking(server);
}

/** A server that answers nothing at all, or speaks WebSocket and then answers nothing. */
function silent(upgrades: boolean): Server {
  const server = createServer(() => {});
  server.on('upgrade', (request, socket) => {
    if (upgrades) socket.write(accepting(request.headers['sec-websocket-key']));
  });
  return server;
}

async function asking(server: Server, signal?: AbortSignal): Promise<unknown> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => sockets.add(socket.on('error', () => {})));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const { port } = server.address() as AddressInfo;
    return await Sandbox.connect(`http://127.0.0.1:${port}`, 'token', { signal }).catch((problem: unknown) => problem);
  } finally {
    for (const one of sockets) one.destroy();
    server.close();
  }
}

describe('a hostile server', () => {
  it('cannot fill the memory with a line that never ends', async () => {
    const piece = frame(Buffer.alloc(2 ** 20, 'x'));
    assert.ok((await connecting((socket) => flood(socket, piece))) instanceof ClosedError);
  });

  it('cannot have us answer without end what it does not read', async () => {
    const id = 'i'.repeat(2 ** 20);
    const call = frame(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', method: 'hook', id, params: {} })}\n`));
    assert.ok((await connecting((socket) => flood(socket.pause(), call))) instanceof ClosedError);
  });

  it('cannot fill the memory with questions whether we are there', async () => {
    const pings = Buffer.concat(Array.from({ length: 1000 }, () => Buffer.concat([Buffer.from([0x89, 125]), Buffer.alloc(125)])));
    assert.ok((await connecting((socket) => flood(socket.pause(), pings))) instanceof ClosedError);
  });

  for (const [what, said] of Object.entries({
    'reserved bits': '\xf2\x00',
    'a mask': '\x82\x81aaaax',
    'an endless frame': '\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff',
    'an unknown kind': '\x8b\x00',
    'a long ping': '\x89\x7e\x00\x7e',
    'no JSON': '\x82\x05nojs\n',
    nothing: '\x82\x05null\n',
  })) {
    it(`is left when it sends ${what}`, async () => {
      assert.ok((await connecting((socket) => socket.write(Buffer.from(said, 'latin1')))) instanceof ClosedError);
    });
  }

  it('is refused for what it says first, however much comes after it', async () => {
    const server = createServer((_, response) => {
      response.writeHead(403);
      const more = (): void => {
        while (!response.destroyed && response.write('x'.repeat(2 ** 16)));
      };
      response.on('drain', more);
      more();
    });
    const problem = await asking(server);
    assert.ok(problem instanceof DeniedError && problem instanceof SandboxError);
  });

  for (const [what, upgrades] of Object.entries({ nothing: false, 'nothing after its greeting': true })) {
    it(`that says ${what} is left when the signal is aborted`, async () => {
      const controller = new AbortController();
      const server = silent(upgrades);
      server.once('upgrade', () => setImmediate(() => controller.abort(new Error('enough'))));
      assert.equal(String(await asking(server, controller.signal)), 'Error: enough');
    });
  }

  it('that sends a frame byte by byte is understood', async () => {
    const said = JSON.stringify({ jsonrpc: '2.0', id: 1, error: { code: -32000, message: 'no' } });
    const problem = await connecting((socket) => {
      socket.setNoDelay(true);
      for (const byte of frame(Buffer.from(`${said}\n`))) socket.write(Buffer.from([byte]));
    });
    assert.match(String(problem), /no/);
  });
});
