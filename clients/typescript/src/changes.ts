/** One side of a change. */
export interface FileState {
  kind: string;
  mode: number;
  size: number;
  /** Of a symbolic link. */
  target?: string | null;
}

/** One path of an overlay project that differs from the host's. */
export interface Change {
  /** Relative to the project. */
  path: string;
  kind: 'added' | 'modified' | 'deleted' | 'mode';
  before: FileState | null;
  after: FileState | null;
  /** Why `apply` leaves it out unless it is named. */
  risk?: string | null;
  /** What happened to the host's file since the sandbox started. */
  conflict?: string | null;
  /** Why it cannot be applied at all. */
  impossible?: string | null;
  notes?: string[];
}

/** What `apply` did. */
export interface Applied {
  applied: string[];
  refused: { path: string; reason: string }[];
}

/** What the sandbox uses now; null where this machine cannot tell. */
export interface Stats {
  memory_bytes: number | null;
  memory_peak_bytes?: number | null;
  cpu_ms: number | null;
  processes: number | null;
  /** Seconds that the sandbox will still live. */
  lifetime_left?: number | null;
}
