/** A request that a command made, or tried to make. */
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

/** A file that was changed, or a blocked one that somebody tried to open. */
export interface FileEvent {
  op: string;
  path: string;
  size?: number;
  blocked?: boolean;
}

/** A command has started. `id` is the same in its `exec` event. */
export interface ExecStartEvent {
  id: string;
  command: string | string[];
  pid: number;
  /** What the launcher calls it, if it was started by that. */
  label?: string;
}

/** A command has ended. */
export interface ExecEvent {
  id: string;
  command: string | string[];
  exit_code: number;
  duration_ms: number;
}

/** The sandbox's own state: "ready", "stopped"; "events_lost" with how many this program was too slow for. */
export interface LifecycleEvent {
  state: string;
  id?: string;
  count?: number;
}

/** Something that a policy script printed. */
export interface LogEvent {
  source: string;
  message: string;
}

/** How a question to the owner can be answered: for this one time, until the sandbox ends, also in the user's own configuration
 * file, or not. */
export type AskAnswer = 'once' | 'sandbox' | 'always' | 'deny';

/** A question to the sandbox's owner: may a command reach a host, or open a blocked file? (docs/asks.md) */
export interface Ask {
  id: number;
  sandbox: string;
  kind: 'host' | 'file';
  host?: string;
  port?: number;
  /** For HTTP. */
  method?: string;
  /** Of the request, or of the file. */
  path?: string;
  /** What was tried with the file: "read", "write" or "list". */
  operation?: string;
  /** Who wants it, as far as that is known. Programs choose their own names. */
  program: string;
  exe: string;
  pid: number | null;
  /** The question in English, safe to print. */
  text: string;
  answers: AskAnswer[];
  /** When it was asked, in seconds since 1970, and how long it waits, in seconds. */
  asked: number;
  timeout: number;
  state: 'waiting' | 'allowed' | 'denied' | 'expired' | 'withdrawn';
  answer: AskAnswer | '';
  by: string;
}

/** What happened. `timestamp` is in seconds since 1970, with fractions. */
export type Event =
  | { type: 'network'; timestamp: number; network: NetworkEvent }
  | { type: 'file'; timestamp: number; file: FileEvent }
  | { type: 'exec_start'; timestamp: number; exec_start: ExecStartEvent }
  | { type: 'exec'; timestamp: number; exec: ExecEvent }
  | { type: 'ask'; timestamp: number; ask: Ask }
  | { type: 'lifecycle'; timestamp: number; lifecycle: LifecycleEvent }
  | { type: 'log'; timestamp: number; log: LogEvent };

export type EventHandler = (event: Event) => void | Promise<void>;
