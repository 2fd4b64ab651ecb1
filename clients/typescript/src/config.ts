/**
 * What a sandbox is asked to be. A section that is left out has its safe default. The keys are those of the configuration
 * file (docs/config.md), so they are written as there: with underscores, sizes as "512m" or bytes, durations as "5m" or
 * seconds.
 */
export interface Config {
  /** `false`: as `mode: 'off'`. */
  enabled?: boolean;
  mode?: 'off' | 'light' | 'standard' | 'max';
  engine?:
    | 'auto'
    | 'bubblewrap'
    | 'seatbelt'
    | 'docker'
    | 'podman'
    | 'apple-container'
    | 'qemu'
    | 'firecracker'
    | 'none';
  /** Who commands are inside: an ordinary user, or root as far as the engine allows. */
  user?: 'user' | 'root';
  /** What is at /: 'host', 'minimal', a directory, or an image by name or reference. */
  image?: string | null;
  filesystem?: FilesystemConfig;
  environment?: EnvironmentConfig;
  network?: NetworkConfig;
  /** Credential files and logins by name; `{ claude: {} }` uses the ready-made one. */
  credentials?: Record<string, CredentialConfig>;
  limits?: LimitsConfig;
  tools?: { enforce_agent_permissions?: boolean; allowed?: string[]; disallowed?: string[] };
  agents?: { runner?: string[]; hosts?: string[]; allow_no_sandbox?: boolean };
  audit?: { directory?: string | null; rotate_size?: Size };
  vfs?: VfsConfig;
  /** A screen, keyboard, mouse and sound of the sandbox's own. */
  desktop?: { enabled?: boolean; start?: boolean; size?: string; sound?: boolean; display?: 'sandbox' | 'host' };
  browser?: {
    enabled?: boolean;
    image?: string | null;
    headless?: boolean;
    cdp_port?: number;
    vnc_port?: number;
    auto_start?: boolean;
    auto_start_timeout?: Duration;
  };
  ui?: { language?: 'en' | 'zh-TW' | 'zh-CN' | null };
  /** A shorter way to say `limits`. */
  resources?: { cpus?: number; memory_mb?: number; timeout_seconds?: number };
  /** A shorter way to say `environment.set`. "${NAME}" of a secret gives its placeholder. */
  env?: Record<string, string>;
}

/** Bytes, or text such as "512m". */
export type Size = number | string;
/** Seconds, or text such as "5m". */
export type Duration = number | string;

/** Which files a command sees, and which of them it may change. */
export interface FilesystemConfig {
  /** The project: visible at its own path, writable unless `read_only`. */
  root?: string;
  read_only?: boolean;
  /** A directory in /home that leads to the project too, unless something is there. */
  also_at?: string;
  /** Changes to the project are kept apart until `apply` or `discard`. */
  overlay?: boolean;
  /** Ask the owner about a blocked file that is touched (docs/asks.md). */
  ask?: boolean;
  allow_read?: string[];
  allow_write?: string[];
  /** A narrower `allow_read` wins. */
  deny_read?: string[];
  /** Wins over everything. */
  deny_write?: string[];
  blocked_patterns?: string[];
  allowed_patterns?: string[];
  toolchains?: boolean;
  scratch_size?: Size;
}

/** Which variables a command sees. */
export interface EnvironmentConfig {
  /** Leave out variables whose names look like secrets. On by default. */
  filter_secrets?: boolean;
  allow?: string[];
  block?: string[];
  set?: Record<string, string>;
}

/** Whom a command may talk to. Nothing listed means nobody. */
export interface NetworkConfig {
  /** "name", "*.name", "name:port", an address or a network; "tcp:name:port" is never inspected. */
  allowed_hosts?: string[];
  /** Wins over `allowed_hosts`. */
  denied_hosts?: string[];
  block_private_ips?: boolean;
  allow_localhost?: boolean;
  /** Ports of the host's loopback that commands can reach. */
  localhost_ports?: number[];
  /** Ports inside that the host can reach: "127.0.0.1:8080:80"; "0:80" takes a free port, see `Sandbox.ports`. */
  publish?: string[];
  allow_git?: boolean;
  http?: { allow?: string[]; deny?: string[] };
  secrets?: Record<string, Secret>;
  policy_script?: string | null;
  policy_secrets?: Record<string, string>;
  intercept?: boolean;
  ca_certificates?: string[];
  upstream_proxy?: string | null;
  /** A connection to a host that is not listed waits while the owner is asked (docs/asks.md). */
  ask?: boolean;
  ask_timeout?: Duration;
}

/** Changes for a running sandbox; `null` takes a secret away. */
export type NetworkChanges = Omit<NetworkConfig, 'secrets'> & { secrets?: Record<string, Secret | null> };

/** A credential that commands can use but never see. Exactly one of `value` and the three `from_…`. */
export interface Secret {
  value?: string | null;
  from_env?: string | null;
  from_file?: string | null;
  from_command?: string[] | null;
  /** Service and user name in the system's keyring. */
  from_keyring?: string[] | null;
  /** Where the value is in the JSON of a file or program. */
  field?: string | null;
  ttl?: Duration | null;
  expires?: string | null;
  hosts: string[];
  in?: ('header' | 'query' | 'body')[];
  placeholder?: string | null;
}

/** A credential file of yours: inside is the same file, with placeholders where the tokens are. */
export interface CredentialConfig {
  use?: string | null;
  file?: string | null;
  at?: string | null;
  format?: 'json' | 'yaml' | 'toml' | 'ini' | 'netrc' | 'env';
  fields?: Record<
    string,
    {
      hosts?: string[];
      kind?: 'access' | 'refresh' | 'id' | 'key' | 'password';
      in?: ('header' | 'query' | 'body')[];
    }
  >;
  keep?: string[];
  refresh?: {
    hosts?: string[];
    paths?: string[];
    expires?: string | null;
    expires_as?: 'ms' | 's' | 'iso';
    refreshed?: string | null;
    scope?: string | null;
    keep?: string[];
  };
  variables?: Record<string, Partial<Secret>>;
  git?: string[];
  save_login?: boolean;
}

/** What a sandbox may use up. */
export interface LimitsConfig {
  memory?: Size | null;
  cpus?: number | string | null;
  pids?: number | null;
  file_size?: Size | null;
  open_files?: number | null;
  /** The longest that one command may run. */
  timeout?: Duration | null;
  /** The longest that the sandbox may live. */
  lifetime?: Duration | null;
  /** The sandbox ends when nothing has run in it for so long. */
  idle_timeout?: Duration | null;
}

/** Directories besides the project. */
export interface VfsConfig {
  direct_mounts?: Record<string, { host_path: string; readonly?: boolean }>;
  mounts?: Record<string, Mount>;
  /** Report changes in kernel-backed directories as events. */
  file_events?: boolean;
}

export interface Mount {
  type: 'memory' | 'real_fs' | 'readonly' | 'overlay' | 'custom';
  host_path?: string | null;
  readonly?: boolean;
  size?: Size | null;
  upper?: Mount | null;
  lower?: Mount | null;
}
