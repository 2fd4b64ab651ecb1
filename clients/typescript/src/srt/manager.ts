import { existsSync } from 'node:fs';
import { EOL } from 'node:os';
import { delimiter, join } from 'node:path';
import type { Duplex } from 'node:stream';
import { command as ourCommand } from '../registry.js';
import { CommandLists, listsLabel } from './command-lists.js';
import {
  merged,
  NOTHING_ALLOWED,
  shownPath,
  type FsReadRestrictionConfig,
  type FsWriteRestrictionConfig,
  type NetworkRestrictionConfig,
  type SandboxAskCallback,
  type SandboxRuntimeConfig,
} from './config.js';
import { HostProxy } from './host-proxy.js';
import { RequestFilter, type FilterRequestCallback } from './request-filter.js';
import { encoded, ignored, SandboxViolationStore } from './violations.js';
import { WarmSandbox, type Ask, type Refusal } from './warm.js';

export interface WrapWithSandboxOptions {
  /** What violations are kept under; by default the command. */
  commandId?: string;
  /** What violations report as the command; by default the command. */
  commandText?: string;
}

export interface SandboxDependencyCheck {
  warnings: string[];
  errors: string[];
}

const MOST_SANDBOXES = 8; // for different settings at a time; one more ends the one that was not used for longest
const MOST_TEXTS = 1000;
const LONGEST_REASON = 500;

interface Entry {
  started: Promise<WarmSandbox>;
  sandbox?: WarmSandbox; // once it has started
  settings: SandboxRuntimeConfig;
  directory: string;
  label: string | undefined; // of the one command that it is for, because that may reach more hosts
  closed: boolean; // settings of its own close the network
}

/** The session of one program, as in srt: there is one for the whole program. */
class Manager {
  /** A refusal by the callback may carry a reason. */
  readonly askCallbackDenyReason = true;
  private config: SandboxRuntimeConfig | undefined;
  private starting: Promise<void> | undefined;
  private ask: Ask | undefined;
  private proxy: HostProxy | undefined;
  private filter: RequestFilter | undefined; // as in srt, the one of `initialize`
  private updating: Promise<void> = Promise.resolve();
  private given: FilterRequestCallback | undefined; // as the settings have it; the one of `initialize` decides
  private readonly sandboxes = new Map<string, Entry>(); // in the order of their last use
  private readonly retiring = new Set<Entry>(); // for what runs in them, or was wrapped for them
  private readonly store = new SandboxViolationStore();
  private readonly texts = new Map<string, string>();
  private readonly lists = new CommandLists();

  /** Starts the sandbox that commands will run in. Rejects when the settings or this machine do not allow it; then nothing can
   * be wrapped. Does nothing while it is initialized already. */
  initialize = async (config: SandboxRuntimeConfig, ask?: SandboxAskCallback, _enableLogMonitor = false): Promise<void> => {
    if (ask !== undefined && typeof ask !== 'function') throw new TypeError('the ask callback must be a function');
    this.starting ??= (async () => {
      this.config = undefined; // a session before this one is over, whatever comes of this one
      const own = copy(config);
      this.given = config.network?.filterRequest;
      this.filter = RequestFilter.of(config.network);
      this.ask = ask && ((host, port) => verdict(ask, host, port));
      await this.sandbox(() => own, () => {});
      this.config ??= own; // `updateConfig` may have been faster
      this.proxy?.close();
      this.proxy = process.platform === 'linux' ? await HostProxy.start(() => this.toGate()) : undefined;
    })();
    try {
      await this.starting;
    } catch (problem) {
      this.starting = undefined;
      this.config = undefined;
      throw problem;
    }
  };

  isSupportedPlatform = (): boolean => process.platform === 'linux' || process.platform === 'darwin';

  isSandboxingEnabled = (): boolean => this.config !== undefined;

  /** Whether the programs are there that every sandbox needs. `sandbox doctor` looks at the machine itself. */
  checkDependencies = (_ripgrep?: unknown): SandboxDependencyCheck => {
    if (!this.isSupportedPlatform()) return { errors: ['Unsupported platform'], warnings: [] };
    const needed = [ourCommand()[0]!, ...(process.platform === 'linux' ? ['bwrap'] : ['sandbox-exec'])];
    const missing = needed.filter((program) => !isProgram(program));
    return { errors: missing.map((program) => `${program} not found`), warnings: [] };
  };

  checkDependenciesAsync = async (ripgrep?: unknown): Promise<SandboxDependencyCheck> => this.checkDependencies(ripgrep);

  /** A command line for a shell, which runs `command` in the sandbox: hand it to `spawn(…, { shell: true })`. */
  wrapWithSandbox = async (
    command: string,
    binShell?: string,
    customConfig?: Partial<SandboxRuntimeConfig>,
    abortSignal?: AbortSignal,
    options?: WrapWithSandboxOptions,
  ): Promise<string> => (await this.words(command, binShell, customConfig, abortSignal, options)).map(quoted).join(' ');

  /** The same as words, for `spawn(argv[0], argv.slice(1), { env })`. Where it starts is up to `spawn`. */
  wrapWithSandboxArgv = async (
    command: string,
    binShell?: string,
    customConfig?: Partial<SandboxRuntimeConfig>,
    abortSignal?: AbortSignal,
    _cwd?: string,
    options?: WrapWithSandboxOptions,
  ): Promise<{ argv: string[]; env: NodeJS.ProcessEnv }> => ({
    argv: await this.words(command, binShell, customConfig, abortSignal, options),
    env: process.env,
  });

  /** Replaces the settings. Hosts count at once, for commands that run, too; the rest counts for commands wrapped from now on. */
  updateConfig = (config: SandboxRuntimeConfig): void => {
    const own = copy(config);
    this.config = own;
    this.given = config.network?.filterRequest;
    this.updating = this.updating.catch(() => {}); // that one was told to whoever wrapped a command meanwhile
    this.updateHosts([...this.sandboxes.values(), ...this.retiring]);
  };

  /** Lets one command reach more hosts than the settings say, from its start: that waits until a sandbox of its own stands. The
   * command may be wrapped under that id before or after this call. */
  registerCommandNetworkLists = (commandId: string, lists: { allowedDomains?: string[] }): void => {
    const label = this.lists.register(commandId, lists);
    const entries = [...this.sandboxes.values(), ...this.retiring];
    const own = entries.filter((entry) => entry.label === label);
    if (own.length === 0 && this.lists.of(label)!.length === 0) return;
    this.updateHosts(own);
    for (const entry of entries) {
      if (entry.label === undefined && entry.sandbox?.awaits(label)) this.move(label, entry, entry.sandbox);
    }
  };

  /** The command has no list any more, whether it runs or not. Its sandbox ends with it. */
  unregisterCommandNetworkLists = (commandId: string): void => {
    const label = this.lists.unregister(commandId);
    if (label === undefined) return;
    for (const { sandbox } of [...this.sandboxes.values(), ...this.retiring]) sandbox?.stay(label);
    const own = [...this.sandboxes].filter(([, entry]) => entry.label === label);
    this.updateHosts(own.map(([, entry]) => entry));
    for (const [key, entry] of own) {
      this.sandboxes.delete(key);
      this.retire(entry);
    }
  };

  getSandboxViolationStore = (): SandboxViolationStore => this.store;

  /** What a command printed as errors, and after it the violations that are kept for it. */
  annotateStderrWithSandboxFailures = (command: string, stderr: string): string => {
    const lines = this.config ? this.store.getViolationsForCommand(command).map(({ line }) => line) : [];
    return lines.length === 0 ? stderr : [stderr, '<sandbox_violations>', ...lines, '</sandbox_violations>'].join(EOL);
  };

  /** Ends every sandbox, and the commands in them. */
  reset = async (): Promise<void> => {
    this.starting = undefined;
    this.proxy?.close();
    this.proxy = undefined;
    this.updating = Promise.resolve();
    this.texts.clear();
    this.lists.clear();
    const entries = [...this.sandboxes.values(), ...this.retiring];
    this.sandboxes.clear();
    this.retiring.clear();
    await Promise.all(entries.map(async ({ started }) => (await started.catch(() => undefined))?.close()));
  };

  /** Nothing is left on the host that would have to be removed. */
  cleanupAfterCommand = (): void => {};

  waitForNetworkInitialization = async (): Promise<boolean> => {
    await this.starting;
    return this.config !== undefined;
  };

  getConfig = (): SandboxRuntimeConfig | undefined =>
    this.config && this.given ? { ...this.config, network: { ...this.config.network, filterRequest: this.given } } : this.config;
  getAllowUnixSockets = (): string[] | undefined => this.config?.network.allowUnixSockets;
  getAllowLocalBinding = (): boolean | undefined => this.config?.network.allowLocalBinding;
  getAllowMachLookup = (): string[] | undefined => this.config?.network.allowMachLookup;
  getIgnoreViolations = (): Record<string, string[]> | undefined => this.config?.ignoreViolations;
  getEnableWeakerNestedSandbox = (): boolean | undefined => this.config?.enableWeakerNestedSandbox;
  /** The port of your own proxy, else one that leads to the gate, for programs outside. Commands inside need none: their connections
   * are met where they are made. */
  getProxyPort = (): number | undefined => this.config?.network.httpProxyPort ?? this.proxy?.http;
  getSocksProxyPort = (): number | undefined => this.config?.network.socksProxyPort ?? this.proxy?.socks;
  /** The password for those that are ours; the name may be any. */
  getProxyAuthToken = (): string | undefined => (this.config?.network.httpProxyPort === undefined ? this.proxy?.token : undefined);
  getLinuxHttpSocketPath = (): undefined => undefined;
  getLinuxSocksSocketPath = (): undefined => undefined;
  getMitmCA = (): undefined => undefined;
  /** Every pattern is honoured. */
  getLinuxGlobPatternWarnings = (): string[] => [];

  getFsReadConfig = (): FsReadRestrictionConfig => {
    const { denyRead = [], allowRead = [], disabled } = this.config?.filesystem ?? {};
    if (disabled) return { denyOnly: [], allowWithinDeny: [] };
    const secrets = (this.config?.credentials?.files ?? []).filter(({ mode }) => mode === 'deny').map(({ path }) => path);
    return { denyOnly: [...new Set([...denyRead.map(shownPath), ...secrets])], allowWithinDeny: allowRead.map(shownPath) };
  };

  getFsWriteConfig = (): FsWriteRestrictionConfig => {
    const { allowWrite = [], denyWrite = [], disabled } = this.config?.filesystem ?? {};
    return disabled
      ? { allowOnly: ['/'], denyWithinAllow: [] }
      : { allowOnly: allowWrite.map(shownPath), denyWithinAllow: denyWrite.map(shownPath) };
  };

  getNetworkRestrictionConfig = (): NetworkRestrictionConfig => {
    if (!this.config) return {};
    const { allowedDomains, deniedDomains } = this.config.network;
    return { allowedHosts: allowedDomains, ...(deniedDomains.length > 0 ? { deniedHosts: deniedDomains } : {}) };
  };

  private async words(
    command: string,
    binShell: string | undefined,
    customConfig: Partial<SandboxRuntimeConfig> | undefined,
    signal: AbortSignal | undefined,
    { commandId, commandText }: WrapWithSandboxOptions = {},
  ): Promise<string[]> {
    signal?.throwIfAborted();
    if (binShell !== undefined && typeof binShell !== 'string') throw new TypeError('binShell must be the path of a shell');
    const key = encoded(commandId || command);
    this.remember(key, commandText ?? command);
    await this.updating;
    await this.starting;
    const custom = customConfig && copy(customConfig);
    const settings = () => merged(this.config ?? NOTHING_ALLOWED, custom);
    const label = listsLabel(commandId);
    const own = label !== undefined && this.lists.has(label);
    const use = (sandbox: WarmSandbox) => {
      signal?.throwIfAborted();
      return sandbox.words(key, binShell || shell(), command, label !== undefined && !own);
    };
    return this.sandbox(settings, use, own ? label : undefined);
  }

  /** The sandbox for such settings in a directory, of one command alone if it has a label: one that stands, or a new one. `use` sees it
   * before it can be the oldest that nobody uses. */
  private async sandbox<T>(
    wanted: () => SandboxRuntimeConfig,
    use: (sandbox: WarmSandbox) => T,
    label?: string,
    directory = process.cwd(),
  ): Promise<T> {
    const [settings, config] = [wanted(), this.config];
    const { allowedDomains, deniedDomains, deniedDomainReasons, ...fixed } = settings.network ?? {};
    const closed = allowedDomains?.length === 0 && (this.config?.network?.allowedDomains?.length ?? 0) > 0;
    const key = JSON.stringify([directory, label, closed, { ...settings, network: fixed, ignoreViolations: undefined }]);
    const there = this.sandboxes.get(key);
    const holds = there && (await there.started.then((sandbox) => sandbox.holds(), () => false));
    if (this.config !== config) {
      await this.updating; // new settings meanwhile: a sandbox started with the old ones would keep their hosts
      return this.sandbox(wanted, use, label, directory);
    }
    // Somebody else may have started one meanwhile.
    const now = this.sandboxes.get(key);
    const entry = now && (now !== there || holds) ? now : this.start(settings, closed, label, directory);
    if (now && entry !== now) this.retire(now);
    this.sandboxes.delete(key);
    this.sandboxes.set(key, entry); // the last one now
    try {
      const sandbox = await entry.started;
      return use(sandbox);
    } finally {
      if (!entry.sandbox && this.sandboxes.get(key) === entry) this.sandboxes.delete(key); // it did not start
      await this.endOldest(entry);
    }
  }

  private async toGate(): Promise<Duplex> {
    await this.updating;
    return this.sandbox(() => this.config ?? NOTHING_ALLOWED, (sandbox) => sandbox.toGate());
  }

  private start(settings: SandboxRuntimeConfig, closed: boolean, label: string | undefined, directory: string): Entry {
    const whole = this.lists.added(settings, label);
    const started = WarmSandbox.start(whole, directory, this.ask, this.filter, (refusal) => this.refused(refusal));
    const entry: Entry = { started, settings, directory, label, closed };
    started.then((sandbox) => (entry.sandbox = sandbox), () => {});
    return entry;
  }

  /** Moves the commands of a label, which were wrapped for the sandbox of an entry, to one that has their list. Until that one stands
   * they wait; if it cannot be had, they do not run. */
  private move(label: string, entry: Entry, from: WarmSandbox): void {
    const list = this.lists.of(label);
    from.hold(label);
    const settings = () => ({ ...entry.settings, network: this.networkOf(entry) });
    const moved = async () => {
      const use = (sandbox: WarmSandbox) => (from.awaitIn(sandbox, label), sandbox);
      const sandbox = await this.sandbox(settings, use, label, entry.directory);
      await this.updating;
      if (this.lists.of(label) === list) from.move(label, sandbox); // else a later call decides
    };
    moved().catch((problem: unknown) => {
      const why = problem instanceof Error ? problem.message : String(problem);
      if (this.lists.of(label) === list) from.refuse(label, `the sandbox for this command's network list could not be started: ${why}`);
    });
  }

  /** What the settings of now say about the network in such a sandbox. */
  private networkOf({ closed }: Entry): SandboxRuntimeConfig['network'] {
    return merged(this.config ?? NOTHING_ALLOWED, closed ? { network: { allowedDomains: [], deniedDomains: [] } } : {}).network;
  }

  /** Tells sandboxes which hosts count now. What goes wrong rejects the next wrap. */
  private updateHosts(entries: readonly Entry[]): void {
    if (entries.length === 0) return;
    const changes = entries.map((entry) => {
      const settings = this.lists.added({ ...entry.settings, network: this.networkOf(entry) }, entry.label);
      return async () => (await entry.started.catch(() => undefined))?.update(settings);
    });
    this.updating = this.updating.then(() => Promise.all(changes.map((change) => change()))).then(() => {});
    this.updating.catch(() => {});
  }

  /** Ends a sandbox that no command is wrapped for any more, when what it was told is done, and what runs in it. */
  private retire(entry: Entry): void {
    this.retiring.add(entry);
    const over = () => void this.retiring.delete(entry);
    void this.updating.catch(() => {}).then(() => entry.started.then((sandbox) => sandbox.retire(over), over));
  }

  /** Except one that was asked for just now. */
  private async endOldest(wanted: Entry): Promise<void> {
    for (const [key, entry] of this.sandboxes) {
      if (this.sandboxes.size <= MOST_SANDBOXES) return;
      const sandbox = await entry.started.catch(() => undefined);
      if (entry === wanted || (sandbox && !sandbox.idle && this.sandboxes.size <= 4 * MOST_SANDBOXES)) continue;
      if (this.sandboxes.get(key) !== entry) continue; // somebody else has seen to it
      this.sandboxes.delete(key);
      this.retire(entry);
    }
  }

  private remember(key: string, text: string): void {
    this.texts.delete(key);
    this.texts.set(key, text);
    const [oldest] = this.texts.keys();
    if (this.texts.size > MOST_TEXTS && oldest !== undefined) this.texts.delete(oldest);
  }

  private refused({ line, label }: Refusal): void {
    const command = label === undefined ? undefined : this.texts.get(label);
    if (ignored(line, command, this.config?.ignoreViolations)) return;
    this.store.addViolation({
      line,
      ...(command === undefined ? {} : { command }),
      ...(label === undefined ? {} : { encodedCommand: label }),
      timestamp: new Date(),
    });
  }
}

/** Why the callback refuses a host; undefined when it allows it, which only `true` does. */
async function verdict(ask: SandboxAskCallback, host: string, port: number): Promise<string | undefined> {
  try {
    const answer: unknown = await ask({ host, port });
    if (answer === true) return undefined;
    const { allow, reason } = (answer ?? {}) as { allow?: unknown; reason?: unknown };
    return (allow === false && typeof reason === 'string' && reason.slice(0, LONGEST_REASON)) || 'user denied';
  } catch {
    return 'permission prompt failed';
  }
}

/** A copy that the caller cannot change, without the function that it may hold. */
function copy<T extends object>(config: T): T {
  const { network } = config as { network?: { filterRequest?: FilterRequestCallback } };
  if (network?.filterRequest === undefined) return structuredClone(config);
  RequestFilter.of(network); // throws what is wrong with it
  const { filterRequest: _, ...rest } = network;
  return structuredClone({ ...config, network: rest });
}

function shell(): string {
  return existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh';
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

function isProgram(name: string): boolean {
  if (name.includes('/')) return existsSync(name);
  return (process.env['PATH'] ?? '').split(delimiter).some((directory) => directory && existsSync(join(directory, name)));
}

/** `SandboxManager` of `@anthropic-ai/sandbox-runtime`, over a sandbox of ours. */
export const SandboxManager = new Manager();
export type ISandboxManager = Manager;
