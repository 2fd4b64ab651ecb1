import type { FilterRequestCallback } from './request-filter.js';

/** A path as srt takes it; `literal` means that `*`, `?` and `[` in it are characters of its name. */
export type FilesystemPath = string | { path: string; literal: true };

export interface NetworkConfig {
  allowedDomains: string[];
  deniedDomains: string[];
  deniedDomainReasons?: Record<string, string>;
  strictAllowlist?: boolean;
  allowUnixSockets?: string[];
  allowAllUnixSockets?: boolean;
  allowLocalBinding?: boolean;
  allowMachLookup?: string[];
  httpProxyPort?: number;
  socksProxyPort?: number;
  /** Decides about every request, over HTTP and TLS. */
  filterRequest?: FilterRequestCallback;
  /** What else srt knows. The sandbox honours it, or refuses it by name (docs/srt.md). */
  [setting: string]: unknown;
}

export interface FilesystemConfig {
  denyRead: FilesystemPath[];
  allowRead?: FilesystemPath[];
  allowWrite: FilesystemPath[];
  denyWrite: FilesystemPath[];
  disabled?: boolean;
  allowGitConfig?: boolean;
}

export type CredentialMode = 'deny' | 'mask';

interface CredentialConfig {
  mode: CredentialMode;
  injectHosts?: string[];
  [setting: string]: unknown;
}
export interface CredentialFileConfig extends CredentialConfig {
  path: string;
}
export interface CredentialEnvVarConfig extends CredentialConfig {
  name: string;
}
export interface CredentialsConfig {
  files?: CredentialFileConfig[];
  envVars?: CredentialEnvVarConfig[];
  [setting: string]: unknown;
}

/** Which violations are not reported: texts to look for, by a part of the command (`*`: every command). */
export type IgnoreViolationsConfig = Record<string, string[]>;

/** The settings of srt, as its own package declares them. */
export interface SandboxRuntimeConfig {
  network: NetworkConfig;
  filesystem: FilesystemConfig;
  credentials?: CredentialsConfig;
  ignoreViolations?: IgnoreViolationsConfig;
  enableWeakerNestedSandbox?: boolean;
  enableWeakerNetworkIsolation?: boolean;
  ripgrep?: { command: string; args?: string[] };
  mandatoryDenySearchDepth?: number;
  allowPty?: boolean;
  git?: { safeDirectories?: string[] };
  [setting: string]: unknown;
}

export interface FsReadRestrictionConfig {
  denyOnly: string[];
  allowWithinDeny?: string[];
}
export interface FsWriteRestrictionConfig {
  allowOnly: string[];
  denyWithinAllow: string[];
}
export interface NetworkRestrictionConfig {
  allowedHosts?: string[];
  deniedHosts?: string[];
}
export interface NetworkHostPattern {
  host: string;
  port: number | undefined;
}

/** Asked about a host that no rule decides. Only `true` allows; an object says why not. */
export type SandboxAskCallback = (
  params: NetworkHostPattern,
) => Promise<boolean | { allow: false; reason: string }> | boolean | { allow: false; reason: string };

/** @internal What is in force without any settings: nothing may be written or reached. */
export const NOTHING_ALLOWED: SandboxRuntimeConfig = {
  network: { allowedDomains: [], deniedDomains: [] },
  filesystem: { denyRead: [], allowWrite: [], denyWrite: [] },
};

/** @internal The settings for one command: a list of `custom` replaces the session's, section by section as in srt; directories
 * that git trusts are added. The session's hosts decide for every command; only an empty list of its own closes the network for one. */
export function merged(session: SandboxRuntimeConfig, custom: Partial<SandboxRuntimeConfig> = {}): SandboxRuntimeConfig {
  const { network, filesystem, git, ...rest } = custom;
  const closed = network?.allowedDomains?.length === 0;
  return {
    ...session,
    ...given(rest),
    ...(git ? { git: { safeDirectories: [...(session.git?.safeDirectories ?? []), ...(git.safeDirectories ?? [])] } } : {}),
    network: { ...session.network, ...(closed ? { allowedDomains: [], allowAllDomains: false } : {}) },
    filesystem: filesystem
      ? { ...session.filesystem, ...given(filesystem), disabled: filesystem.disabled ?? false }
      : session.filesystem,
  };
}

function given<T extends object>(settings: T): Partial<T> {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** @internal A path as text, for those who only show it. */
export function shownPath(path: FilesystemPath): string {
  return typeof path === 'string' ? path : path.path;
}
