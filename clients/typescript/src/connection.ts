import { Answers, type Owner } from './answers.js';
import { closed, fromResponse, SandboxError, type ErrorResponse } from './errors.js';
import type { CallOptions } from './options.js';
import type { Transport } from './transport.js';

/** @internal */
export type Json = Record<string, unknown>;

interface Message {
  id?: number | string | null;
  method?: string;
  params?: Json;
  result?: Json;
  error?: ErrorResponse;
}

interface Unsent {
  answers: Answers;
  line: Buffer;
}

const LINE_LIMIT = 64 * 2 ** 20; // the server's
const ANSWER_LIMIT = 256 * 2 ** 20; // bytes of a line that we take: the server's, too
const HOOKS = 4096; // that may be under way at once
const PATIENCE = 5_000; // milliseconds for the other side's end when nobody waits for it any more
const UNDER_WAY = 96 * 2 ** 20; // bytes of unanswered requests; the server takes 128 MiB and drops what is over

/** @internal One JSON-RPC conversation: requests go out, answers go to whoever waits for them. */
export class Connection implements Owner {
  onEvent: (event: unknown) => void = () => {};
  onHook: (params: Json) => Promise<Json> = async () => {
    throw new Error('this client has no hooks');
  };
  private nextId = 0;
  private readonly waiting = new Map<number, Answers>();
  private readonly unsent: Unsent[] = [];
  private underWay = 0;
  private reasonsToLive = 0;
  private hooks = 0;
  private end: Error | undefined;
  private readonly over: Promise<void>;

  constructor(private readonly transport: Transport) {
    transport.output.on('error', () => {}); // the other side is gone: the end of its output says so, too
    transport.keepAlive(false);
    this.over = Promise.all([this.read(), transport.gone]).then(() => {});
  }

  get ended(): boolean {
    return this.end !== undefined;
  }

  /** One request, one answer. */
  async call<T = Json>(method: string, params: Json = {}, { signal, exact }: CallOptions & { exact?: boolean } = {}): Promise<T> {
    const answers = this.stream(method, params, signal, exact);
    try {
      const answer = await answers.next();
      answers.finish();
      return answer as T;
    } finally {
      answers.close();
    }
  }

  /** One request, many answers. */
  stream(method: string, params: Json, signal?: AbortSignal, exact = false): Answers {
    if (this.end) throw this.end;
    signal?.throwIfAborted();
    const id = ++this.nextId;
    const line = encode({ jsonrpc: '2.0', method, params, id });
    if (line.length > LINE_LIMIT) {
      throw new SandboxError(`${method}: a request may have ${LINE_LIMIT} bytes, this one has ${line.length}`, 'TOO_LARGE');
    }
    const answers = new Answers(id, line.length, exact, this);
    this.waiting.set(id, answers);
    answers.keepAlive(true);
    answers.obey(signal);
    // In the order of the calls, because requests take effect in the order in which they are sent.
    this.unsent.push({ answers, line });
    this.sendWaiting();
    return answers;
  }

  leave(answers: Answers, finished: boolean): void {
    this.waiting.delete(answers.id);
    const queued = this.unsent.findIndex((one) => one.answers === answers);
    if (queued >= 0) {
      this.unsent.splice(queued, 1); // the server has never heard of it
      return;
    }
    this.underWay -= answers.size;
    if (!finished) this.send({ jsonrpc: '2.0', method: 'cancel', params: { request: answers.id } });
    this.sendWaiting();
  }

  grant(id: number, bytes: number): void {
    this.send({ jsonrpc: '2.0', method: 'more', params: { request: id, bytes } });
  }

  keepAlive(change: 1 | -1): void {
    const before = this.reasonsToLive > 0;
    this.reasonsToLive += change;
    const now = this.reasonsToLive > 0;
    if (before !== now) this.transport.keepAlive(now);
  }

  /** Ends the conversation; resolves when the other side is gone. */
  async close(): Promise<void> {
    this.keepAlive(+1);
    try {
      this.transport.end();
      await this.over;
    } finally {
      this.keepAlive(-1);
    }
  }

  /** As `close`, for a caller that waits no longer. Another side that does not go by itself is left, or killed. */
  abandon(): void {
    this.transport.end();
    const late = setTimeout(() => this.transport.kill(), PATIENCE).unref();
    void this.over.then(() => clearTimeout(late));
  }

  /** Ends the conversation without the other side's help. */
  kill(): void {
    this.transport.kill();
  }

  private sendWaiting(): void {
    for (let first = this.unsent[0]; first; first = this.unsent[0]) {
      const { answers, line } = first;
      if (this.underWay > 0 && this.underWay + line.length > UNDER_WAY) return;
      this.unsent.shift();
      this.underWay += answers.size;
      if (!this.end) this.transport.output.write(line);
    }
  }

  private send(message: Json): void {
    if (!this.end) this.transport.output.write(encode(message));
  }

  private async read(): Promise<void> {
    let held: Buffer[] = [];
    let size = 0;
    let cause: unknown;
    try {
      for await (const piece of this.transport.input as AsyncIterable<Buffer>) {
        let start = 0;
        for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10, start)) {
          held.push(piece.subarray(start, end));
          this.sort(Buffer.concat(held).toString());
          held = [];
          size = 0;
          start = end + 1;
        }
        if (start < piece.length) held.push(piece.subarray(start));
        size += piece.length - start;
        if (size > ANSWER_LIMIT) throw new Error(`the server sent a line of more than ${ANSWER_LIMIT} bytes`);
      }
    } catch (problem) {
      cause = problem; // cut off, or the other side does not speak JSON-RPC: there is no going on
      this.transport.kill();
    }
    this.end = closed(cause ? undefined : await this.whyGone(), cause);
    for (const answers of this.waiting.values()) answers.fail(this.end);
  }

  /** Why the other side ended its output, if it is a process that then ended. */
  private whyGone(): Promise<string | undefined> {
    this.transport.end();
    return this.transport.gone;
  }

  private sort(line: string): void {
    const message = JSON.parse(line) as Message;
    if (message.method === 'event') {
      this.onEvent(message.params);
    } else if (message.method === 'hook') {
      if (this.hooks >= HOOKS || this.transport.output.writableLength > UNDER_WAY) throw new Error('the server calls too many hooks');
      void this.hook(message);
    } else if (typeof message.id === 'number') {
      const answers = this.waiting.get(message.id);
      if (message.error) answers?.fail(fromResponse(message.error));
      else if (answers) answers.put((answers.exact ? parseExactly(line) : message).result ?? {});
    }
  }

  private async hook({ id, params = {} }: Message): Promise<void> {
    this.hooks += 1;
    this.keepAlive(+1);
    try {
      this.send({ jsonrpc: '2.0', id, result: await this.onHook(params) });
    } catch (problem) {
      this.send({ jsonrpc: '2.0', id, error: { code: -32000, message: String(problem) } });
    } finally {
      this.hooks -= 1;
      this.keepAlive(-1);
    }
  }
}

/** A message as a line. Throws TypeError for what JSON would silently leave out or turn into null: a time limit of NaN, or
 * a hook written into the configuration, would be no limit and no hook. */
function encode(message: Json): Buffer {
  const text = JSON.stringify(message, (key, value: unknown) => {
    if (typeof value === 'function' || typeof value === 'symbol' || typeof value === 'bigint') {
      throw new TypeError(`${key}: a ${typeof value} cannot be sent to a sandbox`);
    }
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`${key}: ${value} is no usable number`);
    return value;
  });
  return Buffer.from(`${text}\n`);
}

/** JSON in which whole numbers of 16 and more digits become bigint. */
function parseExactly(line: string): Message {
  const marked = line.replace(/"(?:[^"\\]|\\.)*"|(?<![\d.])(-?\d{16,})(?![\d.eE])/g, (found, digits?: string) =>
    digits === undefined ? found : `{"bigint":"${digits}"}`,
  );
  return JSON.parse(marked, (_, value: unknown) => {
    const digits = (value as { bigint?: unknown } | null)?.bigint;
    return typeof digits === 'string' ? BigInt(digits) : value;
  }) as Message;
}
