/** What a sandbox is asked to be: the parameters of `create`. Absent sections have the safe defaults. */
export interface Config {
  image?: string;
  resources?: { cpus?: number; memory_mb?: number; timeout_seconds?: number };
  network?: {
    allowed_hosts?: string[];
    denied_hosts?: string[];
    block_private_ips?: boolean;
    secrets?: Record<string, Secret>;
    policy_script?: string;
    [setting: string]: unknown;
  };
  vfs?: {
    direct_mounts?: Record<string, { host_path: string; readonly?: boolean }>;
    mounts?: Record<string, Mount>;
    [setting: string]: unknown;
  };
  env?: Record<string, string>;
  /** Anything else of docs/config.md. */
  [section: string]: unknown;
}

export interface Secret {
  value?: string;
  hosts: string[];
  [setting: string]: unknown;
}

export interface Mount {
  type: string;
  host_path?: string;
  readonly?: boolean;
  upper?: Mount;
  lower?: Mount;
}

/** How a command ended, and what it printed. */
export interface ExecResult {
  exit_code: number;
  stdout: string;
  stderr: string;
  duration_ms: number;
  /** The signal that ended it, if one did. */
  signal?: number;
  timed_out?: boolean;
  out_of_memory?: boolean;
  /** There was more output than is kept. */
  truncated?: boolean;
  /** Why it ended, when it was not its own doing. */
  note?: string;
}

export interface Chunk {
  stream: 'stdout' | 'stderr';
  data: Buffer;
}

export interface ExecOptions {
  workingDir?: string;
  env?: Record<string, string>;
  stdin?: string | Uint8Array;
  /** Milliseconds; a command that runs longer is killed. */
  timeout?: number;
  /** Bytes of each stream that are kept. */
  maxOutput?: number;
  /** Aborting kills the command. */
  signal?: AbortSignal;
}

export interface SpawnOptions {
  workingDir?: string;
  env?: Record<string, string>;
  timeout?: number;
  /** Runs on a terminal. */
  tty?: { rows: number; cols: number };
  /** With `tty`: joins the terminal of that name, or starts it; it lives on when this client leaves. */
  keep?: string;
}

export interface FileEntry {
  name: string;
  size: number;
  mode: number;
  is_dir: boolean;
}

export interface FileStat {
  size: number;
  mode: number;
  is_dir: boolean;
  mtime_ns: number;
}

export interface NetworkEvent {
  method: string;
  url: string;
  status_code: number;
  request_bytes?: number;
  response_bytes?: number;
  duration_ms?: number;
  blocked: boolean;
  rule?: string;
  reason?: string;
}

export interface FileEvent {
  op: string;
  path: string;
  size: number;
}

export interface ExecEvent {
  command: string;
  exit_code: number;
  duration_ms: number;
}

export interface LifecycleEvent {
  state: string;
  id?: string;
  count?: number;
}

export type Event =
  | { type: 'network'; timestamp: number; network: NetworkEvent }
  | { type: 'file'; timestamp: number; file: FileEvent }
  | { type: 'exec'; timestamp: number; exec: ExecEvent }
  | { type: 'lifecycle'; timestamp: number; lifecycle: LifecycleEvent };

/** A request on its way out, as a hook sees it: with placeholders, never with secrets. */
export interface HttpRequest {
  method: string;
  url: string;
  headers: [string, string][];
  body: Buffer;
}

export interface HttpResponse {
  status: number;
  headers: [string, string][];
  body: Buffer;
}

/** One's own code on the path of requests and files. Returning null, or throwing, refuses. */
export interface Hooks {
  onRequest?(request: HttpRequest): MaybePromise<HttpRequest | null>;
  onResponse?(response: HttpResponse, request: HttpRequest): MaybePromise<HttpResponse | null>;
  onTlsVerify?(host: string, certificates: Buffer[]): MaybePromise<void>;
  beforeOpen?(path: string, flags: number): MaybePromise<void>;
  afterWrite?(path: string, size: number): MaybePromise<void>;
  /** Leaves bodies out, so that they are streamed and not held in memory for the hooks. */
  withoutBodies?: boolean;
}

type MaybePromise<T> = T | Promise<T>;
