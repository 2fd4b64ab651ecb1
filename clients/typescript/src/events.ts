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

/** What happened. `timestamp` is in seconds since 1970, with fractions. */
export type Event =
  | { type: 'network'; timestamp: number; network: NetworkEvent }
  | { type: 'file'; timestamp: number; file: FileEvent }
  | { type: 'exec_start'; timestamp: number; exec_start: ExecStartEvent }
  | { type: 'exec'; timestamp: number; exec: ExecEvent }
  | { type: 'lifecycle'; timestamp: number; lifecycle: LifecycleEvent }
  | { type: 'log'; timestamp: number; log: LogEvent };

export type EventHandler = (event: Event) => void | Promise<void>;
