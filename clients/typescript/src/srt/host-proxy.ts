import { randomBytes, timingSafeEqual } from 'node:crypto';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** @internal Connects to the gate of the session's sandbox, which speaks HTTP and SOCKS5 as a proxy. */
export type ToGate = () => Promise<Duplex>;

const PATIENCE = 10_000; // milliseconds for a client to say who it is
const LONGEST_HEAD = 64 * 1024;
const END = '\r\n\r\n';
const SOCKS = 5;
const NOT_YOURS = 'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="srt"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n';

/** @internal Ports on the loopback that lead to the gate, for programs outside the sandbox that should go by its rules. Commands
 * inside need none. Other users of the machine can reach a port, so each client must present `token` as its password. */
export class HostProxy {
  readonly token = randomBytes(16).toString('hex');
  private readonly clients = new Set<Socket>();

  private readonly servers = [0, 1].map(() => createServer({ allowHalfOpen: true }, (client) => this.accept(client)));

  private constructor(private readonly toGate: ToGate) {}

  /** Listens on two ports of the system's choice. Both speak both protocols. */
  static async start(toGate: ToGate): Promise<HostProxy> {
    const proxy = new HostProxy(toGate);
    for (const server of proxy.servers) {
      await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
      server.unref(); // the program may end while we listen
    }
    return proxy;
  }

  get http(): number {
    return port(this.servers[0]!);
  }

  get socks(): number {
    return port(this.servers[1]!);
  }

  close(): void {
    for (const server of this.servers) server.close();
    for (const client of this.clients) client.destroy();
  }

  private accept(client: Socket): void {
    this.clients.add(client);
    client.on('close', () => this.clients.delete(client));
    client.on('error', () => client.destroy());
    client.setTimeout(PATIENCE, () => client.destroy());
    this.serve(client).catch(() => client.destroy());
  }

  private async serve(client: Socket): Promise<void> {
    const read = reader(client);
    const first = await read(1);
    if (first[0] === SOCKS) {
      if (!(await this.socksLogin(client, read))) return;
      return this.lead(client, await greeted(await this.toGate()));
    }
    const head = Buffer.concat([first, await read('head')]);
    if (!this.isPassword(passwordIn(head))) return void client.end(NOT_YOURS);
    const gate = await this.toGate();
    gate.write(head);
    this.lead(client, gate);
  }

  /** SOCKS5's greeting and its user name and password (RFC 1929). What follows is for the gate. */
  private async socksLogin(client: Socket, read: Read): Promise<boolean> {
    const methods = await read((await read(1))[0]!);
    if (!methods.includes(2)) {
      client.end(Buffer.from([SOCKS, 0xff]));
      return false;
    }
    client.write(Buffer.from([SOCKS, 2]));
    const [, length] = await read(2);
    await read(length!);
    const right = this.isPassword((await read((await read(1))[0]!)).toString());
    client[right ? 'write' : 'end'](Buffer.from([1, right ? 0 : 1]));
    return right;
  }

  private isPassword(given: string | undefined): boolean {
    const [ours, theirs] = [Buffer.from(this.token), Buffer.from(given ?? '')];
    return ours.length === theirs.length && timingSafeEqual(ours, theirs);
  }

  private lead(client: Socket, gate: Duplex): void {
    client.setTimeout(0);
    gate.on('error', () => client.destroy());
    client.on('close', () => gate.destroy());
    client.pipe(gate);
    gate.pipe(client);
  }
}

function port(server: Server): number {
  return (server.address() as AddressInfo).port;
}

type Read = (wanted: number | 'head') => Promise<Buffer>;

/** Reads exactly so many bytes, or a request's head to its empty line; what follows stays for others. */
function reader(from: Duplex): Read {
  return async (wanted) => {
    let held = Buffer.alloc(0);
    for (;;) {
      const end = wanted !== 'head' ? wanted : held.includes(END) ? held.indexOf(END) + END.length : Infinity;
      if (held.length >= end) {
        if (held.length > end) from.unshift(held.subarray(end));
        return held.subarray(0, end);
      }
      if (held.length > LONGEST_HEAD) throw new Error('not a request to a proxy');
      const more = from.read() as Buffer | null;
      if (more) held = Buffer.concat([held, more]);
      else await readable(from);
    }
  };
}

function readable(from: Duplex): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = () => reject(new Error('the other side has gone'));
    if (from.readableEnded || from.destroyed) return over();
    const done = () => {
      from.off('readable', done).off('end', done).off('close', done);
      if (from.readableEnded || from.destroyed) over();
      else resolve();
    };
    from.on('readable', done).on('end', done).on('close', done);
  });
}

/** The password of a request's `Proxy-Authorization`. */
function passwordIn(head: Buffer): string | undefined {
  const fields = head.toString('latin1').split('\r\n').slice(1);
  const given = fields.map((field) => /^proxy-authorization:\s*basic\s+([a-z0-9+/=]+)\s*$/i.exec(field)?.[1]).find((one) => one !== undefined);
  const [, ...password] = Buffer.from(given ?? '', 'base64').toString().split(':');
  return password.length > 0 ? password.join(':') : undefined;
}

/** The gate's SOCKS5, after the greeting: it asks nobody for a password. */
async function greeted(gate: Duplex): Promise<Duplex> {
  gate.write(Buffer.from([SOCKS, 1, 0]));
  const answer = await reader(gate)(2);
  if (answer[1] !== 0) throw new Error('the gate refuses');
  return gate;
}
