export type { Applied, Change, FileState, Stats } from './changes.js';
export type * from './config.js';
export { Desktop, type BrowserEndpoints, type DesktopWindow, type MouseButton, type Point, type Region } from './desktop.js';
export {
  CancelledError,
  ClosedError,
  CommandError,
  ConfigError,
  DeniedError,
  FileError,
  NotFoundError,
  NotStartedError,
  SandboxError,
} from './errors.js';
export type * from './events.js';
export type { FileEntry, FileInfo, ReadOptions } from './files.js';
export type { AfterHooks, BeforeHooks, Changed, Hooks, HttpRequest, HttpResponse } from './hooks.js';
export type { CallOptions, ExecOptions, SpawnOptions, StreamOptions } from './options.js';
export type { PublishedPort } from './ports.js';
export { Process, type ProcessInfo } from './process.js';
export { getSandbox, killSandbox, listSandboxes, prune, type SandboxEntry } from './registry.js';
// The names that the specification uses.
export { getSandbox as getVm, killSandbox as killVm, listSandboxes as listVms, type SandboxEntry as Vm } from './registry.js';
export type { Chunk, ExecResult } from './result.js';
export { runWithConfig } from './run-with-config.js';
export { Sandbox, type AskOptions, type Checkpoint, type ConnectOptions, type CreateOptions, type DialOptions } from './sandbox.js';
export type { SandboxFiles, WriteOptions } from './sandbox-files.js';
export type { Transferred } from './transfer.js';
