import { constants, realpathSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { resolve } from 'node:path';
import type { FilesystemPath, SandboxRuntimeConfig } from './config.js';

/**
 * @internal The files that the path lists of settings name, to see whether they still do: a sandbox decided at its start what to hide,
 * and read then what it masks.
 * What a pattern matches, only the sandbox itself can tell (`rules_hold`).
 */
export class NamedPaths {
  /** Whether some entry is a pattern. */
  readonly patterns: boolean;
  private readonly paths: string[];
  private readonly masked: string[];
  private readonly variables: string[];
  private readonly then: string;

  /** Make it before the sandbox is started: what changes meanwhile then counts. */
  constructor({ filesystem, credentials }: SandboxRuntimeConfig) {
    // A program in JavaScript may leave out what the types demand; the sandbox says so.
    const { denyRead = [], allowRead = [], allowWrite = [], denyWrite = [] } = filesystem ?? {};
    const entries = [...denyRead, ...allowRead, ...allowWrite, ...denyWrite, ...(credentials?.files ?? []).map(({ path }) => path)];
    const patterns = entries.filter(isPattern);
    this.patterns = patterns.length > 0;
    this.paths = entries.filter((entry) => !patterns.includes(entry)).map(absolute);
    const masks = <T extends { mode?: unknown }>(entry: T) => entry.mode === 'mask';
    this.masked = (credentials?.files ?? []).filter(masks).map(({ path }) => absolute(path));
    this.variables = (credentials?.envVars ?? []).filter(masks).map(({ name }) => name);
    this.then = this.look();
  }

  same(): boolean {
    return this.look() === this.then;
  }

  private look(): string {
    const values = this.variables.map((name) => process.env[name] ?? null);
    return JSON.stringify([this.paths.map(identity), this.masked.map(version), values]);
  }
}

/** An empty file that the sandbox made where commands must not make one: it stands for a file that is not there. */
const RESERVED = BigInt(constants.S_IFREG | 0o1644);

function isPattern(entry: FilesystemPath): boolean {
  return typeof entry === 'string' && /[*?[]/.test(entry.replace(/\/\*\*$/, ''));
}

function absolute(entry: FilesystemPath): string {
  const path = typeof entry === 'string' ? entry.replace(/\/\*\*$/, '') : entry.path;
  return resolve(path.replace(/^~(?=\/|$)/, homedir()));
}

/** Which file it is: one that was replaced, as editors save, is another one. */
function identity(path: string): string {
  try {
    const { dev, ino, mode, size } = statSync(path, { bigint: true });
    if (size === 0n && mode === RESERVED) return '';
    return `${realpathSync.native(path)}:${dev}:${ino}`;
  } catch {
    return ''; // it is not there, or not for us, nor for a command
  }
}

/** Which contents of a file: one that was written since has others. */
function version(path: string): string {
  try {
    const { size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    return `${size}:${mtimeNs}:${ctimeNs}`;
  } catch {
    return '';
  }
}
