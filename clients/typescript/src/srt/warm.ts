import type { Duplex } from 'node:stream';
import { WINDOW } from '../answers.js';
import { Connection, type Json } from '../connection.js';
import { DialStream } from '../dial.js';
import { command } from '../registry.js';
import { startServer } from '../transport.js';
import type { Event } from '../events.js';
import type { SandboxRuntimeConfig } from './config.js';
import { NamedPaths } from './named-paths.js';
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
}

/** @internal One sandbox that stands ready, and what starts a command in it. */
export class WarmSandbox {
  private readonly running = new Map<string, string | undefined>(); // command id -> label
  private unstarted = 0;
  private retired = false;
  private readonly reasons = new Map<string, string>(); // destination -> why whoever was asked refused it

  private constructor(
    private readonly connection: Connection,
    private readonly launcher: Launcher,
    private readonly named: NamedPaths,
    private readonly refused: (refusal: Refusal) => void,
  ) {
    connection.onEvent = (event) => this.hear(event as Event);
  }

  /** Starts one in the current directory. Throws what `Sandbox.create` throws. */
  static async start(
    settings: SandboxRuntimeConfig,
    ask: Ask | undefined,
    filter: RequestFilter | undefined,
    refused: (refusal: Refusal) => void,
  ): Promise<WarmSandbox> {
    const named = new NamedPaths(settings);
    const connection = new Connection(await startServer([...command(), '--rpc']));
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
    return this.running.size === 0 && this.unstarted === 0;
  }

  /** The words that run `command` by `shell` in it. */
  words(label: string, shell: string, command: string): string[] {
    this.unstarted++;
    return [this.launcher.program, this.launcher.socket, label, '--', shell, '-c', command];
  }

  /** Whether it hides and shows what a sandbox that is started now would. Files of the host may have come or been replaced. */
  async holds(): Promise<boolean> {
    if (this.ended || !this.named.same()) return false;
    if (!this.named.patterns) return true;
    return (await this.connection.call<{ hold: boolean }>('rules_hold').catch(() => ({ hold: false }))).hold;
  }

  /** Ends it when it is idle, or after a minute when only commands that nobody starts are left. */
  retire(): void {
    this.retired = true;
    if (this.idle) void this.close();
    else setTimeout(() => this.giveUpUnstarted(), PATIENCE).unref();
  }

  private giveUpUnstarted(): void {
    this.unstarted = 0;
    if (this.idle) void this.close();
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
    if (!this.ended) await this.connection.call('update_network', { srt: settings as unknown as Json });
  }

  async close(): Promise<void> {
    if (!this.ended) await this.connection.call('close', { grace: 0 }).catch(() => {}); // then it has ended by itself
    await this.connection.close();
  }

  private hear(event: Event): void {
    if (event.type === 'exec_start') {
      this.running.set(event.exec_start.id, event.exec_start.label);
      if (event.exec_start.label !== undefined && this.unstarted > 0) this.unstarted--;
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
