import type { Json } from './connection.js';

/** What every call takes. */
export interface CallOptions {
  /** Aborting it ends the call: the promise rejects with the signal's reason, and a command that it runs is killed. */
  signal?: AbortSignal | undefined;
}

interface CommandOptions extends CallOptions {
  /** Where the command starts; by default the sandbox's `directory`. */
  cwd?: string | undefined;
  /** Another name for `cwd`. */
  workingDir?: string | undefined;
  /** Variables to add to those of the sandbox. */
  env?: Record<string, string> | undefined;
  /** Milliseconds; a command that runs longer is killed. */
  timeout?: number | undefined;
}

export interface StreamOptions extends CommandOptions {
  /** What the command reads from its standard input. */
  input?: string | Uint8Array | undefined;
  /** Another name for `input`. */
  stdin?: string | Uint8Array | undefined;
}

export interface ExecOptions extends StreamOptions {
  /** Bytes of each stream that the result keeps; 10 MiB by default. */
  maxOutput?: number | undefined;
  /** Throw a `CommandError` when the command fails or runs out of time. */
  check?: boolean | undefined;
  /** Called with output as it comes, one piece after the other. While a promise that it returned is pending, the command
   * waits. If it throws, the command is killed and `exec` rejects with its error. */
  onStdout?: ((data: Buffer) => void | Promise<void>) | undefined;
  onStderr?: ((data: Buffer) => void | Promise<void>) | undefined;
}

export interface SpawnOptions extends CommandOptions {
  /** Run it on a terminal of this size. */
  tty?: { rows: number; cols: number } | undefined;
  /** A name under which it lives on when this program leaves, to be joined by `connect`. With `tty`, a living terminal of
   * that name is joined. */
  keep?: string | undefined;
}

type Translate = (value: never) => unknown;

const same: Translate = (value) => value;
const PARAMETERS = new Map<string, [string, Translate]>([
  ['cwd', ['cwd', same]],
  ['workingDir', ['cwd', same]],
  ['env', ['env', same]],
  ['input', ['stdin', base64]],
  ['stdin', ['stdin', base64]],
  ['timeout', ['timeout', seconds]],
  ['maxOutput', ['max_output', same]],
  ['keep', ['keep', same]],
]);

/** @internal The parameters of a request for a command. Throws TypeError for an option that does not exist: to ignore a
 * misspelt `timeout` would be worse. */
export function commandParameters(command: string | readonly string[], options: object): Json {
  const parameters: Json = { command };
  for (const [option, value] of Object.entries(options)) {
    if (value === undefined) continue;
    const [name, translate] = PARAMETERS.get(option) ?? unknown(option);
    if (name in parameters) throw new TypeError(`option ${option}: given twice, under both of its names`);
    parameters[name] = translate(value as never);
  }
  return parameters;
}

/** @internal Throws TypeError for an option that is not one of `known`. */
export function onlyKnown(options: object, ...known: string[]): void {
  for (const option of Object.keys(options)) if (!known.includes(option)) unknown(option);
}

/** @internal Milliseconds as the seconds of the protocol. Throws RangeError for NaN and infinity, which JSON cannot say: as
 * null they would mean no limit. */
export function seconds(milliseconds: number): number {
  if (!Number.isFinite(milliseconds)) {
    throw new RangeError(`a time must be a number of milliseconds, not ${String(milliseconds)}`);
  }
  return milliseconds / 1000;
}

/** @internal */
export function base64(data: string | Uint8Array): string {
  if (typeof data === 'string') return Buffer.from(data).toString('base64');
  if (!(data instanceof Uint8Array)) throw new TypeError('data must be a string or a Uint8Array');
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64');
}

function unknown(option: string): never {
  throw new TypeError(`unknown option ${JSON.stringify(option)}`);
}
