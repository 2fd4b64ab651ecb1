import type { Readable, Writable } from 'node:stream';
import { unlessAborted } from './abort.js';
import { Answers } from './answers.js';
import type { Connection, Json } from './connection.js';
import { base64, type CallOptions } from './options.js';
import { ProcessOutput } from './process-output.js';
import { InputStream, OutputStream } from './process-streams.js';
import { chunksOf, Collector, readResult, type Chunk, type ExecResult } from './result.js';

const PIECE = 2 ** 20; // of input, in one request

/** A command that runs now, whoever started it. */
export interface ProcessInfo {
  /** The command's id, as in events. */
  id: string;
  pid: number;
  command: string | string[];
  /** Seconds since 1970, with fractions. */
  started: number;
  /** The name it is kept under, for `connect`. */
  keep?: string | null;
  tty: boolean;
}

/**
 * A command that runs. Iterate it for output as it comes, `wait()` for all of it, or use `stdin`, `stdout` and `stderr` as
 * streams. A command whose output nobody reads stops at the next half megabyte, as it would with a full pipe.
 */
export class Process implements AsyncIterable<Chunk>, AsyncDisposable {
  private ended: ExecResult | undefined;
  private waited: Promise<ExecResult> | undefined;
  private readonly output: ProcessOutput;
  private readonly streams: { stdin?: Writable; stdout?: Readable; stderr?: Readable } = {};

  /** @internal Use `Sandbox.spawn` or `Sandbox.connect`. */
  constructor(
    private readonly connection: Connection,
    private readonly answers: Answers,
    readonly pid: number,
    /** It ran before: it was kept under a name, and this program joined it. */
    readonly joined: boolean,
  ) {
    this.output = new ProcessOutput(answers);
  }

  /** Its standard input as a stream; ending the stream ends the input. */
  get stdin(): Writable {
    return (this.streams.stdin ??= new InputStream(this));
  }

  /** Its standard output as a stream. From the first use on, that output comes here only: iterating the process and `wait()`
   * do not see it. Destroying the stream throws away what still comes. */
  get stdout(): Readable {
    return (this.streams.stdout ??= new OutputStream(this.output, 'stdout'));
  }

  /** Its standard error, as `stdout`. On a terminal everything is standard output. */
  get stderr(): Readable {
    return (this.streams.stderr ??= new OutputStream(this.output, 'stderr'));
  }

  /** How it ended, once its output has been read to the end. */
  get result(): ExecResult | undefined {
    return (this.ended ??= this.output.last && readResult(this.output.last));
  }

  /** Output as it comes. Leaving the loop leaves the command running; a later loop goes on where this one stopped. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Chunk, void, undefined> {
    for (;;) {
      const chunk = await this.output.next();
      if (!chunk) return;
      try {
        yield chunk;
      } finally {
        this.output.taken(chunk);
      }
    }
  }

  /** Reads its output to the end. The result holds what was not read before, `maxOutput` bytes (10 MiB) of each stream. Every
   * call gives the same result. Aborting `signal` ends the wait, not the command. */
  async wait(options: CallOptions & { maxOutput?: number | undefined } = {}): Promise<ExecResult> {
    this.waited ??= this.collect(options.maxOutput);
    return unlessAborted(this.waited, options.signal);
  }

  /** Gives the command input; resolves when the command has been given all of it. */
  async write(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    const bytes = typeof data === 'string' ? Buffer.from(data) : data;
    for (let at = 0; at < bytes.length; at += PIECE) {
      await this.ask('input', { data: base64(bytes.subarray(at, at + PIECE)) }, options);
    }
  }

  /** Ends the command's input (on a terminal: types Ctrl-D). */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    await this.ask('input', { end: true }, options);
  }

  /** Sends a signal ("TERM", "SIGTERM" or 15) to the command and the processes it started in its group. */
  async signal(signal: string | number, options: CallOptions = {}): Promise<void> {
    await this.ask('signal', { signal }, options);
  }

  /** Changes the size of its terminal. */
  async resize(rows: number, cols: number, options: CallOptions = {}): Promise<void> {
    await this.ask('resize', { rows, cols }, options);
  }

  /** Kills the command, or leaves it when it is kept under a name. Whoever reads it gets a CancelledError. */
  async cancel(options: CallOptions = {}): Promise<void> {
    await this.ask('cancel', {}, options);
  }

  /** As `cancel`, without waiting, and nobody reads it any more. Does nothing when the command has ended. */
  close(): void {
    this.answers.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** The program may exit while this command runs. */
  unref(): this {
    this.answers.keepAlive(false);
    return this;
  }

  /** The program does not exit by itself while this command runs. That is so unless `unref` was called. */
  ref(): this {
    this.answers.keepAlive(true);
    return this;
  }

  private async collect(maxOutput?: number): Promise<ExecResult> {
    const output = new Collector(maxOutput);
    for await (const chunk of this) output.add(chunk);
    return (this.ended = output.result(this.output.last!));
  }

  private async ask(method: string, params: Json, options: CallOptions): Promise<void> {
    await this.connection.call(method, { request: this.answers.id, ...params }, options);
  }
}

/** @internal The pieces of one answer; asking for the next one gives credit for it. */
export function* consumed(answers: Answers, answer: Json): Generator<Chunk, void, undefined> {
  for (const chunk of chunksOf(answer)) {
    try {
      yield chunk;
    } finally {
      answers.consumed(chunk.data.length);
    }
  }
}
