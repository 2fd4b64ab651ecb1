import type { Duplex } from 'node:stream';
import { WINDOW } from '../answers.js';
import { Connection, type Json } from '../connection.js';
import { DialStream } from '../dial.js';
import { command } from '../registry.js';
import { startServer } from '../transport.js';
import type { Event } from '../events.js';
import type { SandboxRuntimeConfig } from './config.js';
import { NamedPaths } from './named-paths.js';
import { Notes } from './notes.js';
import type { RequestFilter } from './request-filter.js';

/** @internal A refusal, and the label of the command that met it, if that is known. */
export interface Refusal {
  line: string;
  label: string | undefined;
}

/** @internal Answers whether a host that no rule decides may be reached: undefined, or why not. */
export type Ask = (host: string, port: number) => Promise<string | undefined>;

const MOST_REASONS = 1000;
const PATIENCE = 60_000; // milliseconds
const PROXY = { address: '198.18.0.3', port: 3128 }; // where the gate is a proxy, inside

interface Launcher {
  program: string;
  socket: string;
  notes: string;
}

/** @internal One sandbox that stands ready, and what starts a command in it. */
export class WarmSandbox {
  private readonly running = new Map<string, string | undefined>(); // command id -> label
  private readonly unstarted = new Map<string, number>(); // label -> how many commands were wrapped and not started
  private readonly ledFrom = new Map<string, WarmSandbox>(); // label -> the sandbox that the command was wrapped for
  private readonly notes: Notes;
  private retired = false;
  private closing = false;
  private closed: () => void = () => {};
  private readonly reasons = new Map<string, string>(); // destination -> why whoever was asked refused it

  private constructor(
    private readonly connection: Connection,
    private readonly launcher: Launcher,
    private readonly named: NamedPaths,
    private readonly refused: (refusal: Refusal) => void,
  ) {
    connection.onEvent = (event) => this.hear(event as Event);
    this.notes = new Notes(launcher.notes);
  }

  /** Starts one. Throws what `Sandbox.create` throws. */
  static async start(
    settings: SandboxRuntimeConfig,
    directory: string,
    ask: Ask | undefined,
    filter: RequestFilter | undefined,
    refused: (refusal: Refusal) => void,
  ): Promise<WarmSandbox> {
    const named = new NamedPaths(settings);
    const connection = new Connection(await startServer([...command(), '--rpc'], directory));
    try {
      const hooks = { ...(ask ? { on_ask: {} } : {}), ...filter?.hooks };
      const asking = Object.keys(hooks).length > 0 ? { hooks } : {};
      await connection.call('create', { srt: settings as unknown as Json, ...asking });
      const launcher = await connection.call<Launcher>('launcher');
      const sandbox = new WarmSandbox(connection, launcher, named, refused);
      connection.onHook = async (params) => {
        if (params['name'] !== 'on_ask' && filter) return filter.answer(params);
        if (ask) return sandbox.answer(ask, params['ask'] as { host: string; port: number });
        throw new Error('this program has no hooks');
      };
      return sandbox;
    } catch (problem) {
      await connection.close();
      throw problem;
    }
  }

  get ended(): boolean {
    return this.connection.ended;
  }

  /** Whether no command runs in it, and none was wrapped that has not been started. */
  get idle(): boolean {
    return this.running.size === 0 && this.unstarted.size === 0;
  }

  /** The words that run `command` by `shell` in it; or elsewhere, if it `mayMove` and has moved before it starts. */
  words(label: string, shell: string, command: string, mayMove: boolean): string[] {
    this.unstarted.set(label, (this.unstarted.get(label) ?? 0) + 1);
    const note = mayMove ? ['--note', this.notes.path(label)] : [];
    return [this.launcher.program, ...note, this.launcher.socket, label, '--', shell, '-c', command];
  }

  /** Whether a command was wrapped under this label that has not been started. */
  awaits(label: string): boolean {
    return this.unstarted.has(label);
  }

  /** Keeps commands of this label waiting when they are started, until they are moved or stay. */
  hold(label: string): void {
    this.notes.wait(label);
  }

  /** Has `other` wait for the commands of this label that have not been started. */
  awaitIn(other: WarmSandbox, label: string): void {
    const count = this.unstarted.get(label);
    if (count === undefined) return;
    other.unstarted.set(label, count);
    other.ledFrom.set(label, this);
  }

  /** Commands of this label that have not been started run in `other`. */
  move(label: string, other: WarmSandbox): void {
    this.notes.lead(label, other.launcher.socket);
  }

  /** Commands of this label do not run, and print why. */
  refuse(label: string, why: string): void {
    this.notes.refuse(label, why);
  }

  /** Commands of this label run here after all. */
  stay(label: string): void {
    this.notes.remove(label);
  }

  /** Whether it hides and shows what a sandbox that is started now would. Files of the host may have come or been replaced. */
  async holds(): Promise<boolean> {
    if (this.ended || !this.named.same()) return false;
    if (!this.named.patterns) return true;
    return (await this.connection.call<{ hold: boolean }>('rules_hold').catch(() => ({ hold: false }))).hold;
  }

  /** Ends it when it is idle, or after a minute when only commands that nobody starts are left; then calls `closed`. */
  retire(closed: () => void): void {
    this.retired = true;
    this.closed = closed;
    if (this.idle) void this.close();
    else setTimeout(() => this.giveUpUnstarted(), PATIENCE).unref();
  }

  private giveUpUnstarted(): void {
    this.unstarted.clear();
    if (this.idle) void this.close();
  }

  /** One of the commands that were wrapped under this label runs, here or where it was moved to. */
  private started(label: string): void {
    const left = (this.unstarted.get(label) ?? 0) - 1;
    if (left > 0) this.unstarted.set(label, left);
    else this.unstarted.delete(label);
    this.ledFrom.get(label)?.started(label);
    if (left <= 0) this.ledFrom.delete(label);
    if (this.retired && this.idle) void this.close();
  }

  /** A connection to the gate, which takes it for a tenant's to its proxy. Only where the inside has a network of its own: elsewhere
   * the address would be one of the host's network. */
  async toGate(): Promise<Duplex> {
    const answers = this.connection.stream('dial', { ...PROXY, credit: WINDOW });
    await answers.next();
    return new DialStream(this.connection, answers, true);
  }

  /** New rules for the network, for what runs already, too. */
  async update(settings: SandboxRuntimeConfig): Promise<void> {
    if (this.ended) return;
    try {
      await this.connection.call('update_network', { srt: settings as unknown as Json });
    } catch (problem) {
      if (!this.closing) throw problem; // else nothing runs in it any more
    }
  }

  async close(): Promise<void> {
    this.closing = true;
    if (!this.ended) await this.connection.call('close', { grace: 0 }).catch(() => {}); // then it has ended by itself
    await this.connection.close();
    this.closed();
  }

  private hear(event: Event): void {
    if (event.type === 'exec_start') {
      this.running.set(event.exec_start.id, event.exec_start.label);
      if (event.exec_start.label !== undefined) this.started(event.exec_start.label);
    }
    else if (event.type === 'exec') {
      this.running.delete(event.exec.id);
      if (this.retired && this.idle) void this.close();
    }
    else if (event.type === 'network' && event.network.blocked) {
      const to = destination(event.network.url);
      const reason = this.reasons.get(to) ?? event.network.reason ?? 'not allowed';
      this.reasons.delete(to);
      this.refused({ line: `deny network-outbound ${to} (${reason})`, label: this.culprit() });
    } else if (event.type === 'file' && event.file.blocked) {
      this.refused({ line: `deny file-${event.file.op} ${event.file.path}`, label: this.culprit() });
    }
  }

  private async answer(ask: Ask, { host, port }: { host: string; port: number }): Promise<Json> {
    const reason = await ask(host, port);
    if (reason === undefined) return { answer: 'once' };
    if (this.reasons.size < MOST_REASONS) this.reasons.set(`${host}:${port}`, reason);
    return { blocked: reason }; // for the command to read, too
  }

  /** The command that it must have been; unknown when several run. */
  private culprit(): string | undefined {
    const labels = new Set(this.running.values());
    return labels.size === 1 ? [...labels][0] : undefined;
  }
}

/** Host and port of what was asked for; never the path, which may hold a secret. */
function destination(url: string): string {
  try {
    const { hostname, port, protocol } = new URL(url);
    return `${hostname}:${port || (protocol === 'http:' ? '80' : '443')}`;
  } catch {
    return url.split(/[/?#]/)[0] ?? url;
  }
}
