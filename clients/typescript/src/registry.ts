import { execFile } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { closed, NotFoundError, SandboxError } from './errors.js';
import type { CallOptions } from './options.js';
import type { PublishedPort } from './ports.js';
import { connectSocket, type Transport } from './transport.js';

/** One sandbox as the registry knows it. */
export interface SandboxEntry {
  id: string;
  status: 'running' | 'stopped' | 'crashed';
  pid: number | null;
  image: string | null;
  created_at: string;
  command: string[];
  ports?: PublishedPort[];
  /** Only from `getSandbox`. */
  config?: Record<string, unknown>;
}

/** @internal The program: $SANDBOX_COMMAND, or `sandbox`. */
export function command(): string[] {
  const words = process.env['SANDBOX_COMMAND']?.split(/\s+/).filter(Boolean);
  return words?.length ? words : ['sandbox'];
}

/** Every sandbox of this user, the newest first; only those of `status` when it is given. */
export async function listSandboxes(
  options: CallOptions & { status?: SandboxEntry['status'] | undefined } = {},
): Promise<SandboxEntry[]> {
  const all = JSON.parse(await ask(options, 'list', '--json')) as SandboxEntry[];
  return all.filter(({ status }) => !options.status || status === options.status);
}

/** One sandbox. The id may be shortened while it is unique. Throws NotFoundError. */
export async function getSandbox(id: string, options: CallOptions = {}): Promise<SandboxEntry> {
  return JSON.parse(await ask(options, 'get', '--', await find(id))) as SandboxEntry;
}

/** Ends a running sandbox; resolves when it is gone. Throws NotFoundError, or SandboxError when it does not run. */
export async function killSandbox(id: string, options: CallOptions = {}): Promise<void> {
  await ask(options, 'kill', '--', await find(id));
}

/** Deletes what is kept of ended sandboxes, except changes that nobody has applied. Resolves to the ids removed. */
export async function prune(options: CallOptions = {}): Promise<string[]> {
  return (JSON.parse(await ask(options, 'prune', '--json')) as { removed: string[] }).removed;
}

/** @internal A connection to a sandbox that runs, and its whole id. Throws NotFoundError or ClosedError. */
export async function reach(id: string): Promise<[Transport, string]> {
  const found = await find(id);
  const path = join(registry(), found);
  try {
    return [await connectIn(path), found];
  } catch (problem) {
    const { code } = problem as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ECONNREFUSED') throw closed(`sandbox ${found} is not running`);
    throw new SandboxError(`cannot connect to sandbox ${found}: ${code}`, 'OTHER', { cause: problem });
  }
}

async function connectIn(path: string): Promise<Transport> {
  const socket = join(path, 'socket');
  if (Buffer.byteLength(socket) < 100) return connectSocket(socket);
  // The address of a socket must be short. Through a descriptor it is, however deep the directory lies.
  const directory = openSync(path, 'r');
  try {
    return await connectSocket(`/proc/self/fd/${directory}/socket`);
  } finally {
    closeSync(directory);
  }
}

/** The whole id of the sandbox whose id is `wanted` or, with or without "vm-", begins with it. */
async function find(wanted: string): Promise<string> {
  const names = await readdir(registry()).catch(() => [] as string[]);
  const ids = names.filter((name) => name.startsWith('vm-'));
  if (ids.includes(wanted)) return wanted;
  const matching = ids.filter((id) => wanted && (id.startsWith(wanted) || id.startsWith(`vm-${wanted}`)));
  if (matching.length === 1) return matching[0]!;
  throw new NotFoundError(
    matching.length === 0
      ? `no sandbox ${JSON.stringify(wanted)}; \`sandbox list\` shows all`
      : `${JSON.stringify(wanted)} could be any of ${matching.sort().join(', ')}; give more of the id`,
  );
}

function registry(): string {
  const home = process.env['SANDBOX_HOME'];
  return join(home ? resolve(home) : join(homedir(), '.sandbox'), 'vms');
}

function ask({ signal }: CallOptions, ...words: string[]): Promise<string> {
  const [program = '', ...args] = command();
  return new Promise((resolve, reject) => {
    execFile(program, [...args, ...words], { maxBuffer: 2 ** 28, signal }, (problem, stdout, stderr) => {
      if (!problem) resolve(stdout);
      else if (signal?.aborted) reject(signal.reason);
      else reject(new SandboxError(stderr.trim().replace(/^sandbox: /, '') || problem.message, 'OTHER', { cause: problem }));
    });
  });
}
