import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { Connection } from './connection.js';
import { answerHook, named } from './hooks.js';
import { chunks, Process, readResult } from './process.js';
import { command, getVm, home } from './vms.js';
import type { Chunk, Config, Event, ExecOptions, ExecResult, FileEntry, FileStat, Hooks, SpawnOptions } from './types.js';

const PAGE = 3 * 2 ** 20; // large files travel in pieces of this size …
const AHEAD = 3; // … of which so many are under way at a time

type Json = Record<string, unknown>;

/** One sandbox, in a `sandbox --rpc` process of its own or attached to. */
export class Sandbox {
  private readonly handlers = new Set<(event: Event) => void>();

  private constructor(
    private readonly connection: Connection,
    readonly id: string,
    /** The variables that were asked for, as the tenant sees them: placeholders where a secret was named. */
    readonly env: Record<string, string>,
    private readonly owned: boolean,
  ) {
    connection.onEvent = (event: Event) => this.handlers.forEach((handler) => handler(event));
  }

  /** Starts a sandbox; it ends with `close()`, or with this process. */
  static async create(config: Config = {}, options: { hooks?: Hooks; command?: string[] } = {}): Promise<Sandbox> {
    const connection = await Connection.start(options.command ?? [...command(), '--rpc']);
    const { hooks } = options;
    if (hooks) connection.onHook = (params) => answerHook(hooks, params);
    try {
      const asked = hooks ? { ...config, hooks: named(hooks) } : config;
      const made = await connection.call<{ id: string; env: Record<string, string> }>('create', asked);
      return new Sandbox(connection, made.id, made.env, true);
    } catch (problem) {
      await connection.close();
      throw problem;
    }
  }

  /** A sandbox that runs already; `close()` then only leaves it. */
  static async attach(id: string): Promise<Sandbox> {
    const vm = await getVm(id);
    // Through a descriptor: the path of a deep home would be longer than a socket's address may be.
    const directory = openSync(join(home(), 'vms', vm.id), 'r');
    try {
      return new Sandbox(await Connection.to(`/proc/self/fd/${directory}/socket`), vm.id, {}, false);
    } finally {
      closeSync(directory);
    }
  }

  /** Runs a command line (by the shell), or an argument list (as it is), to its end. */
  async exec(words: string | string[], options: string | ExecOptions = {}): Promise<ExecResult> {
    const { signal, ...rest } = typeof options === 'string' ? { workingDir: options } : options;
    return readResult(await this.connection.call('exec', asked(words, rest), signal));
  }

  /** Output as it comes; the generator's return value is the result. Leaving it kills the command. */
  async *execStream(words: string | string[], options: ExecOptions = {}): AsyncGenerator<Chunk, ExecResult> {
    const { signal, ...rest } = options;
    const answers = this.connection.stream('exec_stream', asked(words, rest), signal);
    try {
      for (;;) {
        const answer = await answers.next();
        if (typeof answer['exit_code'] === 'number') {
          answers.finish();
          return readResult(answer);
        }
        yield* chunks(answer);
      }
    } finally {
      answers.close();
    }
  }

  /** Starts a command whose input comes from `Process.write`; with `tty` on a terminal. */
  async spawn(words: string | string[], options: SpawnOptions = {}): Promise<Process> {
    const { tty, keep, ...rest } = options;
    const params = { ...asked(words, rest), ...tty, ...(keep ? { keep } : {}) };
    const answers = this.connection.stream(tty ? 'exec_tty' : 'exec_pipe', params);
    const started = await answers.next();
    return new Process(this.connection, answers, started['pid'] as number, started['joined'] === true);
  }

  async writeFile(path: string, content: string | Uint8Array, mode = 0o644): Promise<void> {
    const data = typeof content === 'string' ? Buffer.from(content) : content;
    const put = (offset: number) => {
      const piece = data.subarray(offset, offset + PAGE);
      const base64 = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength).toString('base64');
      return this.connection.call('write_file', { path, content: base64, mode, offset });
    };
    await put(0); // empties the file: before the others
    await pipelined(offsets(data.length), put);
  }

  async readFile(path: string): Promise<Buffer> {
    const get = (offset: number) =>
      this.connection.call<{ content: string; size: number }>('read_file', { path, offset, length: PAGE });
    const first = await get(0);
    const rest = await pipelined(offsets(first.size), get);
    return Buffer.concat([first, ...rest].map(({ content }) => Buffer.from(content, 'base64')));
  }

  async listFiles(path: string): Promise<FileEntry[]> {
    return (await this.connection.call<{ files: FileEntry[] }>('list_files', { path })).files;
  }

  async stat(path: string): Promise<FileStat> {
    return this.connection.call<FileStat>('stat', { path });
  }

  async mkdir(path: string): Promise<void> {
    await this.connection.call('mkdir', { path });
  }

  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.connection.call('remove', { path, ...options });
  }

  async rename(from: string, to: string): Promise<void> {
    await this.connection.call('rename', { old: from, new: to });
  }

  /** Calls `handler` with every event from now on; returns what ends that. */
  onEvent(handler: (event: Event) => void): () => void {
    this.handlers.add(handler);
    return () => this.handlers.delete(handler);
  }

  /** Changes the network rules of the living sandbox. */
  async updateNetwork(changes: NonNullable<Config['network']>): Promise<void> {
    await this.connection.call('update_network', changes);
  }

  /** Ends the sandbox (or only leaves one that was attached to); resolves when it is gone. */
  async close(): Promise<void> {
    if (this.owned && !this.connection.closed) await this.connection.call('close', { grace: 0 }).catch(() => {});
    await this.connection.close();
  }
}

function asked(words: string | string[], options: ExecOptions | SpawnOptions): Json {
  const params: Json = { command: words };
  if (options.workingDir !== undefined) params['working_dir'] = options.workingDir;
  if (options.env !== undefined) params['env'] = options.env;
  if (options.timeout !== undefined) params['timeout'] = options.timeout / 1000;
  if ('stdin' in options && options.stdin !== undefined) {
    params['stdin'] = Buffer.from(options.stdin as Uint8Array).toString('base64');
  }
  if ('maxOutput' in options && options.maxOutput !== undefined) params['max_output'] = options.maxOutput;
  return params;
}

function offsets(size: number): number[] {
  return Array.from({ length: Math.max(0, Math.ceil(size / PAGE) - 1) }, (_, page) => (page + 1) * PAGE);
}

/** The results in order, with a few requests under way at a time. */
async function pipelined<T>(pages: number[], request: (offset: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  const work = pages.entries(); // shared: each worker takes the next page
  await Promise.all(
    Array.from({ length: AHEAD }, async () => {
      for (const [at, offset] of work) results[at] = await request(offset);
    }),
  );
  return results;
}
