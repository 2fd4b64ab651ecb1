import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { ended, thrown, type ErrorResponse } from './errors.js';

type Json = Record<string, unknown>;

interface Message {
  id?: number | string | null;
  method?: string;
  params?: Json;
  result?: Json;
  error?: ErrorResponse;
}

/** One JSON-RPC conversation: requests out, answers sorted to whoever waits for them. */
export class Connection {
  onEvent: (event: never) => void = () => {};
  onHook: (params: Json) => Promise<Json> = async () => {
    throw new Error('this client has no hooks');
  };
  private nextId = 0;
  private readonly waiting = new Map<number, Answers>();
  private isEnded = false;
  private readonly over: Promise<void>;

  private constructor(
    input: Readable,
    private readonly output: Writable,
    private readonly finish: () => void,
    gone: Promise<void>,
  ) {
    output.on('error', () => {}); // the other side went away: its last word is the end of `input`
    this.over = Promise.all([this.read(input), gone]).then(() => {});
  }

  /** With a server that is started for it, and ends with it. */
  static async start(command: readonly string[]): Promise<Connection> {
    const [program, ...args] = command;
    const server = spawn(program!, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    await new Promise<void>((resolve, reject) => {
      server.once('spawn', resolve);
      server.once('error', (error) => reject(new Error(`cannot start ${program}: ${error.message}`)));
    });
    const gone = new Promise<void>((resolve) => server.once('close', () => resolve()));
    return new Connection(server.stdout, server.stdin, () => server.stdin.end(), gone);
  }

  /** With the socket of a sandbox that runs already. */
  static async to(path: string): Promise<Connection> {
    const socket = connect(path);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    const gone = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    return new Connection(socket, socket, () => socket.end(), gone);
  }

  /** One request, one answer. */
  async call<T = Json>(method: string, params: Json = {}, signal?: AbortSignal): Promise<T> {
    const answers = this.stream(method, params, signal);
    try {
      const answer = await answers.next();
      answers.finish();
      return answer as T;
    } finally {
      answers.close();
    }
  }

  /** One request, many answers. */
  stream(method: string, params: Json, signal?: AbortSignal): Answers {
    if (this.isEnded) throw ended();
    signal?.throwIfAborted();
    const id = ++this.nextId;
    const answers = new Answers(id, (finished) => {
      this.waiting.delete(id);
      if (!finished) this.send({ jsonrpc: '2.0', method: 'cancel', params: { request: id } });
    });
    this.waiting.set(id, answers);
    answers.heed(signal);
    this.send({ jsonrpc: '2.0', method, params, id });
    return answers;
  }

  get closed(): boolean {
    return this.isEnded;
  }

  /** Ends the conversation; resolves when the other side is gone. */
  async close(): Promise<void> {
    this.finish();
    await this.over;
  }

  private send(message: Json): void {
    if (!this.isEnded) this.output.write(JSON.stringify(message) + '\n');
  }

  private async read(input: Readable): Promise<void> {
    let held: Buffer[] = [];
    try {
      for await (const piece of input as AsyncIterable<Buffer>) {
        let start = 0;
        for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10, start)) {
          held.push(piece.subarray(start, end));
          this.sort(JSON.parse(Buffer.concat(held).toString()) as Message);
          held = [];
          start = end + 1;
        }
        if (start < piece.length) held.push(piece.subarray(start));
      }
    } catch {
      // Cut off, or whoever speaks there does not speak JSON-RPC: either way it is over.
    }
    this.isEnded = true;
    for (const answers of this.waiting.values()) answers.fail(ended());
    this.waiting.clear();
  }

  private sort(message: Message): void {
    if (message.method === 'event') {
      this.onEvent(message.params as never);
    } else if (message.method === 'hook') {
      void this.hook(message);
    } else if (typeof message.id === 'number') {
      const answers = this.waiting.get(message.id);
      if (message.error) answers?.fail(thrown(message.error));
      else answers?.put(message.result ?? {});
    }
  }

  private async hook(message: Message): Promise<void> {
    try {
      const result = await this.onHook(message.params ?? {});
      this.send({ jsonrpc: '2.0', id: message.id, result });
    } catch (problem) {
      this.send({ jsonrpc: '2.0', id: message.id, error: { code: -32000, message: String(problem) } });
    }
  }
}

/** The answers to one request, in order. */
export class Answers {
  private readonly queue: Json[] = [];
  private problem: Error | undefined;
  private wake: (() => void) | undefined;
  private done = false;
  private unheed: () => void = () => {};

  constructor(
    readonly id: number,
    private readonly leave: (finished: boolean) => void,
  ) {}

  /** Leaves when `signal` is aborted. */
  heed(signal: AbortSignal | undefined): void {
    if (!signal) return;
    const abort = () => {
      this.fail(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
      this.close();
    };
    signal.addEventListener('abort', abort, { once: true });
    this.unheed = () => signal.removeEventListener('abort', abort);
  }

  async next(): Promise<Json> {
    for (;;) {
      const first = this.queue.shift();
      if (first) return first;
      if (this.problem) {
        this.finish();
        throw this.problem;
      }
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  put(answer: Json): void {
    this.queue.push(answer);
    this.wake?.();
  }

  fail(problem: Error): void {
    this.problem ??= problem;
    this.wake?.();
  }

  /** The last answer has come. */
  finish(): void {
    if (!this.done) {
      this.done = true;
      this.unheed();
      this.leave(true);
    }
  }

  /** Leaves: what the request still runs is cancelled. */
  close(): void {
    if (!this.done) {
      this.done = true;
      this.unheed();
      this.leave(false);
    }
  }
}
