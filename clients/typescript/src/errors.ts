import type { ExecResult } from './result.js';

/** What is known of an error besides its message. */
export interface ErrorDetails {
  /** The number that the protocol gives it (docs/rpc.md); absent when the error did not come over the protocol. */
  rpcCode?: number | undefined;
  data?: Record<string, unknown> | undefined;
  cause?: unknown;
}

/** The base class of all errors that this package throws on purpose. */
export class SandboxError extends Error {
  readonly rpcCode: number | undefined;
  readonly data: Record<string, unknown>;

  constructor(
    message: string,
    /** "CLOSED", "DENIED" and so on, as in the table of docs/rpc.md. A FileError has "ENOENT" and the like. */
    readonly code: string,
    { rpcCode, data = {}, cause }: ErrorDetails = {},
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.rpcCode = rpcCode;
    this.data = data;
  }

  /** The message before its values were put in, in English: the key of a translation. Undefined when the error did not come
   * over the protocol, or is the operating system's. */
  get template(): string | undefined {
    const { template } = this.data;
    return typeof template === 'string' ? template : undefined;
  }

  /** The values of the template, as docs/rpc.md describes them. */
  get values(): Readonly<Record<string, unknown>> {
    const { values } = this.data;
    return typeof values === 'object' && values !== null ? (values as Record<string, unknown>) : {};
  }
}

/** The sandbox could not be started. */
export class NotStartedError extends SandboxError {}

/** The sandbox has ended, or the connection to it has. */
export class ClosedError extends SandboxError {}

/** A policy refused the request; `rule` says which one and `reason` why. */
export class DeniedError extends SandboxError {
  get rule(): string {
    return String(this.data['rule'] ?? '');
  }
  get reason(): string {
    return String(this.data['reason'] ?? this.message);
  }
}

/** The configuration or a hook is wrong; `path` says where. */
export class ConfigError extends SandboxError {
  get path(): string {
    return String(this.data['path'] ?? '');
  }
}

/** The request was cancelled by `Process.cancel`, or because the sandbox was closed. */
export class CancelledError extends SandboxError {}

/** No sandbox of this user has that id, or several ids begin that way. */
export class NotFoundError extends SandboxError {
  constructor(message: string) {
    super(message, 'NOT_FOUND');
  }
}

/** The operating system refused a path inside the sandbox. `code` is its name for the reason, for example "ENOENT". */
export class FileError extends SandboxError {
  get errno(): number {
    return Number(this.data['errno']);
  }
}

/** The command never ran, or (with `check: true`) it failed; then `result` says how. */
export class CommandError extends SandboxError {
  readonly result: ExecResult | undefined;

  constructor(message: string, code: string, details: ErrorDetails & { result?: ExecResult } = {}) {
    super(message, code, details);
    this.result = details.result;
  }

  /** The command's own exit code; 126 or 127 when it never ran, as a shell would say. */
  get exit_code(): number {
    return this.result?.exit_code ?? Number(this.data['exit_code'] ?? 127);
  }
  get stdout(): string {
    return this.result?.stdout ?? '';
  }
  get stderr(): string {
    return this.result?.stderr ?? '';
  }
}

type Kind = new (message: string, code: string, details: ErrorDetails) => SandboxError;

const KINDS = new Map<number, [string, Kind]>([
  [-32700, ['PARSE', SandboxError]],
  [-32600, ['INVALID_REQUEST', SandboxError]],
  [-32601, ['NO_SUCH_METHOD', SandboxError]],
  [-32602, ['INVALID_PARAMS', SandboxError]],
  [-32603, ['INTERNAL', SandboxError]],
  [-32000, ['NOT_STARTED', NotStartedError]],
  [-32001, ['NOT_CREATED', ClosedError]],
  [-32002, ['ALREADY_CREATED', SandboxError]],
  [-32003, ['CLOSED', ClosedError]],
  [-32004, ['COMMAND', CommandError]],
  [-32005, ['FILE', FileError]],
  [-32006, ['DENIED', DeniedError]],
  [-32007, ['CONFIG', ConfigError]],
  [-32008, ['CANCELLED', CancelledError]],
  [-32009, ['BUSY', SandboxError]],
  [-32010, ['LINE_TOO_LONG', SandboxError]],
  [-32011, ['NO_SUCH_REQUEST', SandboxError]],
  [-32012, ['TOO_LARGE', SandboxError]],
]);

/** @internal An error as the protocol sends it. */
export interface ErrorResponse {
  code: number;
  message: string;
  data?: Record<string, unknown>;
}

/** @internal The error that a response stands for. */
export function fromResponse({ code, message, data }: ErrorResponse): SandboxError {
  const [name, kind] = KINDS.get(code) ?? ['OTHER', SandboxError];
  const own = kind === FileError && data?.['name'] ? String(data['name']) : name;
  return new kind(message, own, { rpcCode: code, data });
}

/** @internal The error for a server's answer that is no WebSocket. */
export function fromRefusal(status: number, body: string): SandboxError {
  let message = `the server refused: HTTP ${status}`;
  try {
    message = String((JSON.parse(body) as { error: { message: unknown } }).error.message);
  } catch {
    // not one of its own answers
  }
  if (status === 401 || status === 403) return new DeniedError(message, 'DENIED', { data: { rule: 'server', reason: message } });
  if (status === 404) return new NotFoundError(message);
  return status === 409 ? new ClosedError(message, 'CLOSED') : new SandboxError(message, 'OTHER');
}

/** @internal */
export function closed(why = 'the connection to the sandbox has ended', cause?: unknown): ClosedError {
  return new ClosedError(why, 'CLOSED', { rpcCode: -32003, cause });
}

/** @internal */
export function badConfig(message: string, path: string): ConfigError {
  return new ConfigError(`${path}: ${message}`, 'CONFIG', { rpcCode: -32007, data: { path } });
}

/** @internal */
export function failed(result: ExecResult): CommandError {
  const how =
    result.note ??
    (result.timed_out
      ? 'the command ran longer than its timeout'
      : result.signal !== undefined
        ? `the command was ended by signal ${result.signal}`
        : `the command exited with status ${result.exit_code}`);
  const said = result.stderr.trim();
  const message = said ? `${how}: ${said.length > 500 ? `…${said.slice(-500)}` : said}` : how;
  return new CommandError(message, 'COMMAND', { rpcCode: -32004, data: { exit_code: result.exit_code }, result });
}
