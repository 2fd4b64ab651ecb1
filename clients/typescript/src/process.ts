import type { Answers, Connection } from './connection.js';
import type { Chunk, ExecResult } from './types.js';

type Json = Record<string, unknown>;

/** A command that runs. Iterate it for output as it comes, or `wait()` for all of it. */
export class Process implements AsyncIterable<Chunk> {
  /** There when the output has been read to its end. */
  result: ExecResult | undefined;

  constructor(
    private readonly connection: Connection,
    private readonly answers: Answers,
    readonly pid: number,
    /** It is a kept terminal that was there before. */
    readonly joined: boolean,
  ) {}

  async *[Symbol.asyncIterator](): AsyncIterator<Chunk> {
    while (!this.result) {
      const answer = await this.answers.next();
      if (typeof answer['exit_code'] === 'number') {
        this.answers.finish();
        this.result = readResult(answer);
        return;
      }
      yield* chunks(answer);
    }
  }

  /** Until it has ended; what it printed and nobody has taken is in the result. */
  async wait(): Promise<ExecResult> {
    const output = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
    for await (const { stream, data } of this) output[stream].push(data);
    return {
      ...this.result!,
      stdout: Buffer.concat(output.stdout).toString(),
      stderr: Buffer.concat(output.stderr).toString(),
    };
  }

  /** Gives the command input; resolves when it has been taken. */
  async write(data: string | Uint8Array): Promise<void> {
    await this.connection.call('input', { request: this.answers.id, data: Buffer.from(data).toString('base64') });
  }

  /** Ends the command's input. */
  async closeStdin(): Promise<void> {
    await this.connection.call('input', { request: this.answers.id, end: true });
  }

  /** Sends a signal ("TERM", 15) to the command's process group. */
  async signal(signal: string | number): Promise<void> {
    await this.connection.call('signal', { request: this.answers.id, signal });
  }

  async resize(rows: number, cols: number): Promise<void> {
    await this.connection.call('resize', { request: this.answers.id, rows, cols });
  }

  /** Kills the command (or leaves a kept terminal); whoever reads it gets a CancelledError. */
  async cancel(): Promise<void> {
    await this.connection.call('cancel', { request: this.answers.id });
  }

  /** Leaves the command without waiting for it. */
  close(): void {
    this.answers.close();
  }
}

export function* chunks(answer: Json): Iterable<Chunk> {
  for (const stream of ['stdout', 'stderr'] as const) {
    const data = answer[stream];
    if (typeof data === 'string') yield { stream, data: Buffer.from(data, 'base64') };
  }
}

export function readResult(answer: Json): ExecResult {
  const text = (name: string) => Buffer.from((answer[name] as string | undefined) ?? '', 'base64').toString();
  return { duration_ms: 0, ...(answer as object), stdout: text('stdout'), stderr: text('stderr') } as ExecResult;
}
