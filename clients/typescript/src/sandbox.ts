import type { Duplex } from 'node:stream';
import { unlessAborted } from './abort.js';
import { WINDOW, type Answers } from './answers.js';
import type { Applied, Change, Stats } from './changes.js';
import type { Config, NetworkChanges } from './config.js';
import { Connection, type Json } from './connection.js';
import { Desktop, type BrowserEndpoints } from './desktop.js';
import { DialStream } from './dial.js';
import { badConfig, failed } from './errors.js';
import type { Ask, AskAnswer, Event, EventHandler } from './events.js';
import { HookTable, type Hooks } from './hooks.js';
import {
  commandParameters,
  onlyKnown,
  seconds,
  type CallOptions,
  type ExecOptions,
  type SpawnOptions,
  type StreamOptions,
} from './options.js';
import type { PublishedPort } from './ports.js';
import { consumed, Process, type ProcessInfo } from './process.js';
import { command, reach } from './registry.js';
import { Collector, readResult, type Chunk, type ExecResult } from './result.js';
import { SandboxFiles } from './sandbox-files.js';
import { startServer, type Transport } from './transport.js';
import { connectServer } from './websocket.js';

export interface CreateOptions extends CallOptions {
  hooks?: Hooks | undefined;
  /** The server to start, instead of `sandbox --rpc` (or what SANDBOX_COMMAND names). */
  command?: readonly string[] | undefined;
}

export interface ConnectOptions extends CallOptions {
  /** A sandbox that runs there, by id or name; else one is created. */
  id?: string | undefined;
  config?: Config | undefined;
  hooks?: Hooks | undefined;
  /** Certificates (PEM) to trust in place of the system's. */
  certificates?: string | undefined;
}

export interface AskOptions extends CallOptions {
  /** This program answers questions from now on. */
  watch?: boolean | undefined;
}

export interface DialOptions extends CallOptions {
  /** An IP address inside; 127.0.0.1 by default. */
  address?: string | undefined;
  /** Keep your side open when the other side has sent everything. */
  allowHalfOpen?: boolean | undefined;
}

/** A saved sandbox. `saves` says what: "machine" is memory, processes and files. */
export interface Checkpoint {
  name: string;
  sandbox: string;
  engine: string;
  saves: 'machine' | 'files';
  /** Bytes on the disk. */
  size: number;
  /** Seconds since 1970. */
  created: number;
  /** Files that were open and had no path any more. */
  lost: string[];
}

interface Created {
  id: string;
  env: Record<string, string>;
  directory: string;
  engine: string;
  ports: PublishedPort[];
}

/**
 * One sandbox. Its methods can be called at the same time; what one of them changes is so for those called after it.
 *
 * A sandbox does not keep the program running: when no call is under way and nothing else is to be done, the program exits,
 * and a sandbox that it created ends.
 */
export class Sandbox extends SandboxFiles implements AsyncDisposable {
  readonly id: string;
  /** The variables that were asked for, as commands see them: a placeholder where a secret was named. */
  readonly env: Readonly<Record<string, string>>;
  /** Where commands start. */
  readonly directory: string;
  /** What builds the walls, for example "bubblewrap". */
  readonly engine: string;
  private published: PublishedPort[];
  private readonly handlers = new Set<EventHandler>();

  private constructor(
    connection: Connection,
    created: Created,
    private readonly owned: boolean,
  ) {
    super(connection);
    this.id = created.id;
    this.env = created.env;
    this.directory = created.directory;
    this.engine = created.engine;
    this.published = created.ports;
    connection.onEvent = (event) => this.tell(event as Event);
  }

  /** Starts a sandbox, which ends with `close()` or with this program. Throws ConfigError or NotStartedError. */
  static async create(config: Config = {}, options: CreateOptions = {}): Promise<Sandbox> {
    return Sandbox.begin('create', config, config as Json, options);
  }

  /** Starts a sandbox that goes on from a checkpoint. A checkpoint holds neither secrets nor values of variables: `config`
   * gives those again that have no source of their own. Throws ConfigError or SandboxError. */
  static async restore(checkpoint: string, config: Config = {}, options: CreateOptions = {}): Promise<Sandbox> {
    return Sandbox.begin('restore', config, { checkpoint, config: config as Json }, options);
  }

  /** Creates a sandbox on a server (`sandbox serve`), or with `id` uses one that runs there. One that was created so ends with
   * `close()` or with this program. Throws what `create` throws, DeniedError when the token may not do that, NotFoundError, and
   * SandboxError when the server cannot be reached. */
  static async connect(url: string, token: string, options: ConnectOptions = {}): Promise<Sandbox> {
    const { id, config = {}, certificates, ...rest } = options;
    const place = (path: string): Promise<Transport> =>
      connectServer(url.replace(/\/+$/, '') + path, token, certificates, rest.signal);
    if (id === undefined) return Sandbox.begin('create', config, config as Json, rest, () => place('/v1/rpc'));
    onlyKnown(rest, 'signal');
    rest.signal?.throwIfAborted();
    const connection = new Connection(await place(`/v1/sandboxes/${encodeURIComponent(id)}/rpc`));
    return Sandbox.over(connection, false, rest.signal, () => connection.call('info', {}, rest));
  }

  private static async begin(
    method: string,
    config: Config,
    params: Json,
    options: CreateOptions,
    start: () => Promise<Transport> = () => startServer(options.command ?? [...command(), '--rpc']),
  ): Promise<Sandbox> {
    onlyKnown(options, 'hooks', 'command', 'signal');
    if ('hooks' in config) throw badConfig(`belongs in the options of Sandbox.${method}`, 'hooks');
    const hooks = options.hooks === undefined ? undefined : new HookTable(options.hooks);
    options.signal?.throwIfAborted();
    const connection = new Connection(await start());
    if (hooks) connection.onHook = (asked) => hooks.answer(asked);
    return Sandbox.over(connection, true, options.signal, () =>
      connection.call(method, { ...params, ...(hooks ? { hooks: hooks.names } : {}) }, options),
    );
  }

  /** A sandbox that runs already; `close()` then only leaves it. The id may be shortened while it is unique. Throws
   * NotFoundError, or ClosedError when the sandbox has ended. */
  static async attach(id: string, options: CallOptions = {}): Promise<Sandbox> {
    options.signal?.throwIfAborted();
    const [transport, found] = await reach(id);
    const connection = new Connection(transport);
    return Sandbox.over(connection, false, options.signal, async () => ({
      ...(await connection.call('info', {}, options)),
      id: found,
    }));
  }

  private static async over(
    connection: Connection,
    owned: boolean,
    signal: AbortSignal | undefined,
    ask: () => Promise<Json>,
  ): Promise<Sandbox> {
    try {
      return new Sandbox(connection, (await ask()) as unknown as Created, owned);
    } catch (problem) {
      if (signal?.aborted) connection.abandon();
      else await connection.close();
      throw problem;
    }
  }

  // -- commands

  /** Runs a command line (by the shell) or an argument list (without one) to its end. A command that fails is a result, not
   * an error, unless `check` is set. A string in place of options is the working directory. Throws CommandError when the
   * command cannot be started. */
  async exec(command: string | readonly string[], options: string | ExecOptions = {}): Promise<ExecResult> {
    const { check, onStdout, onStderr, signal, ...rest } = typeof options === 'string' ? { cwd: options } : options;
    const result =
      onStdout || onStderr || isLarge(rest)
        ? await this.execWatched(command, { ...rest, signal, onStdout, onStderr })
        : readResult(await this.connection.call('exec', commandParameters(command, rest), { signal }));
    if (check && (result.exit_code !== 0 || result.timed_out)) throw failed(result);
    return result;
  }

  private async execWatched(command: string | readonly string[], options: ExecOptions): Promise<ExecResult> {
    const { onStdout, onStderr, maxOutput, ...rest } = options;
    const output = new Collector(maxOutput);
    const stream = this.execStream(command, rest);
    try {
      for (;;) {
        const next = await stream.next();
        if (next.done) return output.result(next.value as unknown as Json);
        output.add(next.value);
        await (next.value.stream === 'stdout' ? onStdout : onStderr)?.(next.value.data);
      }
    } finally {
      await stream.return(undefined as never);
    }
  }

  /** Output as it comes; the generator's return value is the result. Leaving the loop kills the command. A reader that is slow
   * slows the command down. */
  async *execStream(command: string | readonly string[], options: StreamOptions = {}): AsyncGenerator<Chunk, ExecResult> {
    const { signal, ...rest } = options;
    const large = isLarge(rest);
    const params = commandParameters(command, large ? { ...rest, input: undefined, stdin: undefined } : rest);
    const answers = this.stream(large ? 'exec_pipe' : 'exec_stream', params, signal);
    try {
      if (large) void this.feed(answers, rest);
      for (;;) {
        const answer = await answers.next();
        if (typeof answer['exit_code'] === 'number') {
          answers.finish();
          return readResult(answer);
        }
        yield* consumed(answers, answer);
      }
    } finally {
      answers.close();
    }
  }

  /** Gives a command its input piece by piece. A command that ends before it has read all is no error. */
  private async feed(answers: Answers, { input, stdin }: StreamOptions): Promise<void> {
    const process = new Process(this.connection, answers, 0, false);
    await process
      .write(input ?? stdin ?? '')
      .then(() => process.closeStdin())
      .catch(() => {});
  }

  /** Starts a command and resolves when it runs. Its input comes from `Process.write`. Aborting `signal` kills it. */
  async spawn(command: string | readonly string[], options: SpawnOptions = {}): Promise<Process> {
    const { tty, signal, ...rest } = options;
    const params = { ...commandParameters(command, rest), ...(tty ? { rows: tty.rows, cols: tty.cols } : {}) };
    return this.process(this.stream(tty ? 'exec_tty' : 'exec_pipe', params, signal));
  }

  /** Joins a command that was started with `keep`, from this program or another. */
  async connect(name: string, options: CallOptions = {}): Promise<Process> {
    return this.process(this.stream('connect', { keep: name }, options.signal));
  }

  /** The commands that run now, whoever started them. */
  async processes(options: CallOptions = {}): Promise<ProcessInfo[]> {
    return (await this.connection.call<{ processes: ProcessInfo[] }>('processes', {}, options)).processes;
  }

  private async process(answers: Answers): Promise<Process> {
    const started = await answers.next();
    return new Process(this.connection, answers, Number(started['pid']), started['joined'] === true);
  }

  private stream(method: string, params: Json, signal: AbortSignal | undefined): Answers {
    return this.connection.stream(method, { ...params, credit: WINDOW }, signal);
  }

  // -- an overlay project's changes (`filesystem.overlay`)

  /** What commands have changed in the project. */
  async changes(options: CallOptions = {}): Promise<Change[]> {
    return (await this.connection.call<{ changes: Change[] }>('changes', {}, options)).changes;
  }

  /** Applies changes to the host's files: all of them, or those at or below `paths`. Files that changed on the host meanwhile
   * are refused unless `overwrite` is set. */
  async apply(
    options: CallOptions & { paths?: readonly string[] | undefined; overwrite?: boolean | undefined } = {},
  ): Promise<Applied> {
    onlyKnown(options, 'paths', 'overwrite', 'signal');
    const { signal, ...rest } = options;
    return this.connection.call<Applied>('apply', rest, { signal });
  }

  /** Ends the sandbox and throws the changes away. */
  async discard(options: CallOptions = {}): Promise<void> {
    await this.connection.call('discard', {}, options);
    await this.connection.close();
  }

  // -- network

  /** Ports of the sandbox that the host can reach (`network.publish`). */
  get ports(): readonly PublishedPort[] {
    return this.published;
  }

  /** Changes the network rules; they hold from the next connection on. */
  async updateNetwork(changes: NetworkChanges, options: CallOptions = {}): Promise<void> {
    await this.connection.call('update_network', changes as Json, options);
    if ('publish' in changes) {
      this.published = (await this.connection.call<{ ports: PublishedPort[] }>('ports', {}, options)).ports;
    }
  }

  /** The questions to the owner that wait for an answer (docs/asks.md). With `watch`, this program follows `ask` events and
   * answers from now on, so questions wait for it. */
  async asks(options: AskOptions = {}): Promise<Ask[]> {
    onlyKnown(options, 'watch', 'signal');
    const { watch = false } = options;
    return (await this.connection.call<{ asks: Ask[] }>('asks', { watch }, options)).asks;
  }

  /** Answers a question. Throws SandboxError when it was answered already, or its time is over. */
  async answer(id: number, answer: AskAnswer, options: CallOptions = {}): Promise<void> {
    await this.connection.call('answer', { ask: id, answer }, options);
  }

  /** Connects to a TCP port that a command inside listens on. Aborting `signal` closes the connection. As with a socket of
   * `node:net`, your side ends by itself when the other side has ended, unless `allowHalfOpen` is true. */
  async dial(port: number, options: DialOptions = {}): Promise<Duplex> {
    onlyKnown(options, 'address', 'allowHalfOpen', 'signal');
    const { address = '127.0.0.1', allowHalfOpen = false, signal } = options;
    const answers = this.stream('dial', { port, address }, signal);
    await answers.next();
    return new DialStream(this.connection, answers, allowHalfOpen);
  }

  /** A screen, keyboard, mouse and sound of the sandbox's own (docs/desktop.md). */
  get desktop(): Desktop {
    return new Desktop(this.connection);
  }

  /** Starts a browser inside, unless it runs, and returns where it can be driven. */
  async browser(options: CallOptions = {}): Promise<BrowserEndpoints> {
    return this.connection.call<BrowserEndpoints>('browser', {}, options);
  }

  // -- the sandbox itself

  /** Calls `handler` with every event from now on; returns a function that ends that. An error that it throws becomes a
   * warning of the process and harms nobody else. */
  onEvent(handler: EventHandler): () => void {
    this.handlers.add(handler);
    return () => void this.handlers.delete(handler);
  }

  async stats(options: CallOptions = {}): Promise<Stats> {
    return this.connection.call<Stats>('stats', {}, options);
  }

  /** Stops everything inside until `resume`; commands and file methods are refused meanwhile. */
  async pause(options: CallOptions = {}): Promise<void> {
    await this.connection.call('pause', {}, options);
  }

  async resume(options: CallOptions = {}): Promise<void> {
    await this.connection.call('resume', {}, options);
  }

  /** Saves the sandbox under a name, for others to start from; it goes on running. */
  async checkpoint(name?: string, options: CallOptions = {}): Promise<Checkpoint> {
    return this.connection.call<Checkpoint>('checkpoint', name === undefined ? {} : { name }, options);
  }

  /** Starts `n` sandboxes that go on from here, and returns their ids. They end with this one. */
  async fork(n = 1, options: CallOptions = {}): Promise<string[]> {
    return (await this.connection.call<{ ids: string[] }>('fork', { n }, options)).ids;
  }

  /** Changes how long the sandbox lives from now on, in milliseconds; null means without limit. */
  async extend(
    options: CallOptions & { lifetime?: number | null | undefined; idleTimeout?: number | null | undefined },
  ): Promise<void> {
    onlyKnown(options, 'lifetime', 'idleTimeout', 'signal');
    const { lifetime, idleTimeout, signal } = options;
    const params: Json = {};
    if (lifetime !== undefined) params['lifetime'] = lifetime === null ? null : seconds(lifetime);
    if (idleTimeout !== undefined) params['idle_timeout'] = idleTimeout === null ? null : seconds(idleTimeout);
    await this.connection.call('extend', params, { signal });
  }

  /** Ends the sandbox, or leaves one that was attached to; resolves when that is done. Calls under way have `grace`
   * milliseconds (0) to finish. Aborting `signal` kills the process that owns the sandbox, which ends it, too. Closing again
   * does nothing. */
  async close(options: CallOptions & { grace?: number | undefined } = {}): Promise<void> {
    onlyKnown(options, 'grace', 'signal');
    const { grace = 0, signal } = options;
    await unlessAborted(this.end(seconds(grace)), signal, () => this.connection.kill());
  }

  private async end(grace: number): Promise<void> {
    if (this.owned && !this.connection.ended) {
      await this.connection.call('close', { grace }).catch(() => {}); // then it has ended by itself
    }
    await this.connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private tell(event: Event): void {
    for (const handler of [...this.handlers]) {
      // In a promise, so that what it throws at once and what it throws later are the same.
      void (async () => handler(event))().catch((problem: unknown) => {
        process.emitWarning(problem instanceof Error ? problem : new Error(`an event handler threw ${String(problem)}`));
      });
    }
  }
}

/** Whether the input does not go along with the request: the server would keep it for as long as the command runs. */
function isLarge({ input, stdin }: StreamOptions): boolean {
  return (input ?? stdin ?? '').length > 2 ** 20;
}
