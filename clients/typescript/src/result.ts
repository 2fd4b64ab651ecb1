import type { Json } from './connection.js';

/** How a command ended, and what it printed. */
export interface ExecResult {
  /** 128 + n when signal n ended it, as shells say. */
  exit_code: number;
  /** The output as text; bytes that are not UTF-8 become U+FFFD. */
  stdout: string;
  stderr: string;
  /** The output as it was. Not enumerable, so that printing a result does not show everything twice. */
  readonly stdout_bytes: Buffer;
  readonly stderr_bytes: Buffer;
  duration_ms: number;
  user_ms?: number;
  system_ms?: number;
  max_rss_kb?: number;
  /** The signal that ended it, if one did. */
  signal?: number;
  /** It was killed because it ran longer than its `timeout`. */
  timed_out?: boolean;
  /** It was killed because it used more memory than the sandbox may. */
  out_of_memory?: boolean;
  /** It printed more than `maxOutput` bytes; the rest is not in the result. */
  truncated?: boolean;
  /** Why it ended, when that was not its own doing. */
  note?: string;
}

/** A piece of a running command's output. */
export interface Chunk {
  stream: 'stdout' | 'stderr';
  data: Buffer;
}

/** @internal The most that is kept of each stream unless the caller says otherwise. */
export const MAX_OUTPUT = 10 * 2 ** 20;

/** @internal The result that an answer holds; `stdout` and `stderr` are its own, or those that were collected. */
export function readResult(answer: Json, stdout = bytes(answer['stdout']), stderr = bytes(answer['stderr'])): ExecResult {
  const result = { duration_ms: 0, ...answer, stdout: stdout.toString(), stderr: stderr.toString() };
  Object.defineProperties(result, { stdout_bytes: { value: stdout }, stderr_bytes: { value: stderr } });
  return result as unknown as ExecResult;
}

/** @internal The pieces of output in one answer. */
export function* chunksOf(answer: Json): Iterable<Chunk> {
  for (const stream of ['stdout', 'stderr'] as const) {
    if (typeof answer[stream] === 'string') yield { stream, data: bytes(answer[stream]) };
  }
}

/** @internal */
export function bytes(base64: unknown): Buffer {
  return Buffer.from(typeof base64 === 'string' ? base64 : '', 'base64');
}

/** @internal The output of one command, up to a limit for each stream; the rest is counted and not kept. */
export class Collector {
  private readonly kept = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  private readonly room: { stdout: number; stderr: number };
  private readonly over = { stdout: 0, stderr: 0 };

  constructor(limit = MAX_OUTPUT) {
    this.room = { stdout: limit, stderr: limit };
  }

  add({ stream, data }: Chunk): void {
    const part = data.subarray(0, this.room[stream]);
    if (part.length > 0) this.kept[stream].push(part);
    this.room[stream] -= part.length;
    this.over[stream] += data.length - part.length;
  }

  result(answer: Json): ExecResult {
    const truncated = this.over.stdout + this.over.stderr > 0;
    return readResult(truncated ? { ...answer, truncated } : answer, this.joined('stdout'), this.joined('stderr'));
  }

  /** With the same mark that the server puts where it cuts. */
  private joined(stream: Chunk['stream']): Buffer {
    const more = this.over[stream];
    const mark = more > 0 ? [Buffer.from(`\n[output cut by sandbox: ${more} more bytes]\n`)] : [];
    return Buffer.concat([...this.kept[stream], ...mark]);
  }
}
