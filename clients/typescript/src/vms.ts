import { execFile, spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Config } from './types.js';

/** One sandbox as the registry knows it. */
export interface Vm {
  id: string;
  status: 'running' | 'stopped' | 'crashed';
  pid: number | null;
  image: string | null;
  created_at: string;
  command: string[];
  /** `getVm` only. */
  config?: Record<string, unknown>;
}

/** The program: $SANDBOX_COMMAND, or `sandbox`. */
export function command(): string[] {
  return process.env['SANDBOX_COMMAND']?.split(/\s+/).filter(Boolean) ?? ['sandbox'];
}

/** Where the sandboxes of this user are registered. */
export function home(): string {
  return process.env['SANDBOX_HOME'] ?? join(homedir(), '.sandbox');
}

/** Every sandbox of this user, the newest first; only those of `status` when it is given. */
export async function listVms(filter: { status?: Vm['status'] } = {}): Promise<Vm[]> {
  const all = JSON.parse(await ask('list', '--json')) as Vm[];
  return all.filter((vm) => !filter.status || vm.status === filter.status);
}

/** One sandbox; its id may be shortened while it is unique. */
export async function getVm(id: string): Promise<Vm> {
  return JSON.parse(await ask('get', id)) as Vm;
}

/** Ends a running sandbox; resolves when it is gone. */
export async function killVm(id: string): Promise<void> {
  await ask('kill', id);
}

/** Deletes every ended sandbox's entry, and what crashed ones left behind. Resolves to the ids removed. */
export async function prune(): Promise<string[]> {
  return (JSON.parse(await ask('prune', '--json')) as { removed: string[] }).removed;
}

/** A command of one's own with a policy baked in: `runWithConfig(config, process.argv.slice(2))`, where `argv` begins
 * with "run". Resolves to the exit status. Whoever runs it cannot loosen `config`. */
export async function runWithConfig(config: Config, argv: string[]): Promise<number> {
  const [verb, ...rest] = argv;
  const words = rest[0] === '--' ? rest.slice(1) : rest;
  if (verb !== 'run' || words.length === 0) throw new Error('usage: run command…');
  const [program, ...args] = command();
  // Through a pipe: a secret must not be in an argument list, an environment or a file.
  const child = spawn(program!, [...args, '--config-fd', '3', 'run', '--', ...words], {
    stdio: ['inherit', 'inherit', 'inherit', 'pipe'],
  });
  const pipe = child.stdio[3] as NodeJS.WritableStream;
  pipe.on('error', () => {}); // it ended without reading; its exit status says why
  pipe.end(JSON.stringify(config));
  const ignore = () => {}; // the terminal sends its signals to both of us; the command decides, we report
  process.on('SIGINT', ignore);
  try {
    return await new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code) => resolve(code ?? 125));
    });
  } finally {
    process.off('SIGINT', ignore);
  }
}

function ask(...words: string[]): Promise<string> {
  const [program, ...args] = command();
  return new Promise((resolve, reject) => {
    execFile(program!, [...args, ...words], { maxBuffer: 2 ** 28 }, (problem, stdout, stderr) => {
      if (problem) reject(new Error(stderr.trim().replace(/^sandbox: /, '') || problem.message));
      else resolve(stdout);
    });
  });
}
