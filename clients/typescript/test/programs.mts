/** Programs that use the package, run as they would be: in a Node of their own. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const PACKAGE = new URL('../src/index.mjs', import.meta.url).href;

/** Runs an ES module that has everything of the package as `sandbox`. */
export function run(script: string): { status: number | null; stdout: string; stderr: string } {
  const whole = `import * as sandbox from ${JSON.stringify(PACKAGE)};\nconst { Sandbox } = sandbox;\n${script}`;
  return spawnSync(process.execPath, ['--input-type=module', '-e', whole], { encoding: 'utf8', timeout: 120_000 });
}

export function temporaryDirectory(): string {
  return realpathSync(mkdtempSync(join(tmpdir(), 'agent-sandbox-')));
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
