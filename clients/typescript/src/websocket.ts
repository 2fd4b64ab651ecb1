import { createHash, randomBytes } from 'node:crypto';
import * as http from 'node:http';
import * as https from 'node:https';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { unlessAborted } from './abort.js';
import { fromRefusal, SandboxError } from './errors.js';
import type { Transport } from './transport.js';

const MAGIC = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const BINARY = 2;
const CLOSE = 8;
const PING = 9;
const PONG = 10;
const PIECE = 2 ** 17; // bytes of a frame that we send
const LARGEST = 2 ** 24; // bytes of one that we take
const LARGEST_REFUSAL = 2 ** 16;
const PATIENCE = 30_000; // milliseconds for the server's whole answer
const GRACE = 60_000; // milliseconds in which a server ends what we have left
const UNREAD = 2 ** 20; // bytes of ours that a server which keeps asking may leave unread

/** @internal A WebSocket as two byte streams. Node makes the connection, by HTTP's own upgrade; the frames (RFC 6455) are ours,
 * because Node 20 has no WebSocket and those of later ones send no header. Rejects with what the server said. */
export async function connectServer(
  url: string,
  token: string,
  certificates?: string,
  signal?: AbortSignal,
): Promise<Transport> {
  const place = new URL(url);
  if (place.protocol !== 'https:' && place.protocol !== 'http:') {
    throw new SandboxError(`the server's address is https://HOST[:PORT], not ${JSON.stringify(url)}`, 'INVALID');
  }
  const key = randomBytes(16).toString('base64');
  const headers = {
    Authorization: `Bearer ${token}`,
    Connection: 'Upgrade',
    Upgrade: 'websocket',
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': key,
  };
  const request =
    place.protocol === 'https:'
      ? https.request(place, { headers, agent: false, ...(certificates === undefined ? {} : { ca: certificates }) })
      : http.request(place, { headers, agent: false });
  const [socket, early] = await unlessAborted(upgraded(request, key, place.origin), signal, () => request.destroy());
  socket.setNoDelay(true);
  const stream = new Frames(socket, early);
  const gone = new Promise<undefined>((resolve) => socket.once('close', () => resolve(undefined)));
  return {
    input: stream,
    output: stream,
    gone,
    end: () => {
      stream.end();
      const late = setTimeout(() => socket.destroy(), GRACE);
      socket.once('close', () => clearTimeout(late));
    },
    kill: () => void socket.destroy(),
    keepAlive: (on) => void (on ? socket.ref() : socket.unref()),
  };
}

function upgraded(request: http.ClientRequest, key: string, origin: string): Promise<[Socket, Buffer]> {
  let late: NodeJS.Timeout;
  return new Promise<[Socket, Buffer]>((resolve, reject) => {
    late = setTimeout(() => request.destroy(new Error(`no answer within ${PATIENCE / 1000} seconds`)), PATIENCE);
    request.once('error', (cause) => {
      reject(new SandboxError(`cannot reach ${origin}: ${cause.message}`, 'OTHER', { cause }));
    });
    request.once('response', (response) => {
      const pieces: Buffer[] = [];
      let size = 0;
      const refuse = (): void => reject(fromRefusal(response.statusCode ?? 0, Buffer.concat(pieces).toString()));
      response.on('data', (piece: Buffer) => {
        size += piece.length;
        if (size <= LARGEST_REFUSAL) return void pieces.push(piece);
        refuse();
        request.destroy();
      });
      response.once('end', refuse);
      response.once('error', refuse);
      response.once('close', refuse);
    });
    request.once('upgrade', (response, socket, early) => {
      const expected = createHash('sha1').update(key + MAGIC).digest('base64');
      if (response.headers['sec-websocket-accept'] === expected) return resolve([socket as Socket, early]);
      socket.destroy();
      reject(new SandboxError(`${origin} does not speak WebSocket`, 'OTHER'));
    });
    request.end();
  }).finally(() => clearTimeout(late));
}

/** The bytes in the frames. Neither side's frames are messages: each is any part of the stream. */
class Frames extends Duplex {
  private held: Buffer = Buffer.alloc(0); // a head, or a whole frame that is about the connection: some bytes
  private left = 0; // bytes of the stream's own frame that is under way

  constructor(
    private readonly socket: Socket,
    early: Buffer,
  ) {
    super({ allowHalfOpen: true });
    socket.on('data', (data: Buffer) => this.arrived(data));
    socket.once('end', () => this.finish());
    socket.once('error', () => this.finish());
    socket.once('close', () => this.finish());
    if (early.length) this.arrived(early);
  }

  override _read(): void {
    this.socket.resume();
  }

  override _write(data: Buffer, _: BufferEncoding, done: (problem?: Error | null) => void): void {
    let written = true;
    for (let at = 0; at < data.length; at += PIECE) written = this.send(BINARY, data.subarray(at, at + PIECE));
    if (written || this.socket.destroyed) return done();
    const go = (): void => {
      this.socket.off('drain', go).off('close', go);
      done();
    };
    this.socket.once('drain', go).once('close', go);
  }

  override _final(done: () => void): void {
    this.send(CLOSE, Buffer.from([3, 232])); // 1000: done
    done();
  }

  private send(kind: number, content: Buffer): boolean {
    if (!this.socket.writable) return true;
    const short = content.length < 126 ? 6 : content.length < 65536 ? 8 : 14;
    const frame = Buffer.alloc(short + content.length);
    frame[0] = 0x80 | kind;
    if (short === 6) frame[1] = 0x80 | content.length;
    else if (short === 8) frame.writeUInt16BE(content.length, (frame[1] = 0xfe) && 2);
    else frame.writeBigUInt64BE(BigInt(content.length), (frame[1] = 0xff) && 2);
    const mask = randomBytes(4);
    mask.copy(frame, short - 4);
    for (let at = 0; at < content.length; at++) frame[short + at] = content[at]! ^ mask[at & 3]!;
    return this.socket.write(frame);
  }

  private arrived(data: Buffer): void {
    this.held = this.held.length ? Buffer.concat([this.held, data]) : data;
    for (;;) {
      if (this.left && this.held.length) this.pass();
      const frame = this.left ? undefined : this.next();
      if (frame === undefined) return;
      const [kind, content] = frame;
      if (kind === PING && this.socket.writableLength > UNREAD) this.socket.destroy();
      else if (kind === PING) this.send(PONG, content);
      else if (kind === CLOSE) this.finish();
    }
  }

  /** What is there of the stream's own frame: nothing is kept until the whole of it has come. */
  private pass(): void {
    const content = this.held.subarray(0, this.left);
    this.held = this.held.subarray(content.length);
    this.left -= content.length;
    if (!this.push(content)) this.socket.pause();
  }

  /** The next frame that is about the connection, if it is there; of one of the stream's own the head is taken. */
  private next(): [number, Buffer] | undefined {
    const held = this.held;
    if (held.length < 2) return undefined;
    const short = held[1]! & 0x7f;
    const head = short === 126 ? 4 : short === 127 ? 10 : 2;
    if (held.length < head) return undefined;
    const size = short === 126 ? held.readUInt16BE(2) : short === 127 ? Number(held.readBigUInt64BE(2)) : short;
    const kind = held[0]! & 0x0f;
    if (held[1]! & 0x80 || held[0]! & 0x70 || size > LARGEST || (kind > BINARY && (kind < CLOSE || kind > PONG || size > 125))) {
      this.socket.destroy(); // no frame of a server's
      return undefined;
    }
    if (kind <= BINARY) {
      this.held = held.subarray(head);
      this.left = size;
      return [kind, this.held.subarray(0, 0)];
    }
    if (held.length < head + size) return undefined;
    this.held = held.subarray(head + size);
    return [kind, held.subarray(head, head + size)];
  }

  private finish(): void {
    this.held = Buffer.alloc(0);
    this.left = 0;
    if (!this.readableEnded && !this.destroyed) this.push(null);
    this.socket.end();
  }
}
