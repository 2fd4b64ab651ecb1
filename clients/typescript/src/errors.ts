/** An error response of the sandbox. The codes are in the table of docs/rpc.md. */
export class SandboxError extends Error {
  constructor(
    message: string,
    readonly code: number,
    readonly data: Record<string, unknown> = {},
  ) {
    super(message);
    this.name = new.target.name;
  }
}

/** The sandbox could not be started. */
export class NotStartedError extends SandboxError {}
/** The sandbox has ended, or the connection to it. */
export class ClosedError extends SandboxError {}
/** The command never ran; `data.exit_code` is what a shell would have said. */
export class CommandError extends SandboxError {}
/** A policy refused; `data.rule` and `data.reason` say which and why. */
export class DeniedError extends SandboxError {}
/** The configuration makes no sense; `data.path` says where. */
export class ConfigError extends SandboxError {}
/** The request was cancelled. */
export class CancelledError extends SandboxError {}

/** An error of the operating system about a path inside; `errno` and `errorName` ("ENOENT") are its own. */
export class FileError extends SandboxError {
  get errno(): number {
    return Number(this.data['errno']);
  }
  get errorName(): string {
    return String(this.data['name']);
  }
}

type Kind = new (message: string, code: number, data?: Record<string, unknown>) => SandboxError;

const KINDS = new Map<number, Kind>([
  [-32000, NotStartedError],
  [-32001, ClosedError],
  [-32003, ClosedError],
  [-32004, CommandError],
  [-32005, FileError],
  [-32006, DeniedError],
  [-32007, ConfigError],
  [-32008, CancelledError],
]);

export interface ErrorResponse {
  code: number;
  message: string;
  data?: Record<string, unknown>;
}

export function thrown(error: ErrorResponse): SandboxError {
  const kind = KINDS.get(error.code) ?? SandboxError;
  return new kind(error.message, error.code, error.data);
}

export function ended(): ClosedError {
  return new ClosedError('the connection to the sandbox has ended', -32003);
}
