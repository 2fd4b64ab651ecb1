/** Programs that use the package, run as they would be: in a Node of their own. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Sandbox, type Config, type Hooks } from '../src/index.mjs';

export const PACKAGE = new URL('../src/index.mjs', import.meta.url).href;

/** Runs an ES module that has everything of the package as `sandbox`. */
export function run(script: string): { status: number | null; stdout: string; stderr: string } {
  const whole = `import * as sandbox from ${JSON.stringify(PACKAGE)};\nconst { Sandbox } = sandbox;\n${script}`;
  return spawnSync(process.execPath, ['--input-type=module', '-e', whole], { encoding: 'utf8', timeout: 120_000 });
}

const SERVER = process.env['SANDBOX_TEST_SERVER'];

/** Creates a sandbox: by a program of its own, or over HTTP on the server that SANDBOX_TEST_SERVER names. */
export function create(config: Config = {}, options: { hooks?: Hooks; signal?: AbortSignal } = {}): Promise<Sandbox> {
  if (!SERVER) return Sandbox.create(config, options);
  return Sandbox.connect(SERVER, process.env['SANDBOX_TEST_TOKEN'] ?? '', { config, ...options });
}

export function temporaryDirectory(): string {
  const made = realpathSync(mkdtempSync(join(tmpdir(), 'agent-sandbox-')));
  process.on('exit', () => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** Waits for something that alone would not keep a program running, such as an event of a sandbox. */
export async function awake<T>(promise: Promise<T>): Promise<T> {
  const timer = setInterval(() => {}, 2 ** 30);
  try {
    return await promise;
  } finally {
    clearInterval(timer);
  }
}

/** Waits until `condition` gives something, and returns it. */
export async function eventually<T>(condition: () => T): Promise<NonNullable<T>> {
  for (;;) {
    const found = condition();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
