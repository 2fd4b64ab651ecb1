import { spawn } from 'node:child_process';
import { unlessAborted } from './abort.js';
import type { Config } from './config.js';
import { NotStartedError } from './errors.js';
import type { CallOptions } from './options.js';
import { command } from './registry.js';

/**
 * A command of your own with a fixed policy: `process.exitCode = await runWithConfig(config, process.argv.slice(2))`, where
 * the arguments begin with "run". Resolves to the exit status. Whoever runs the command cannot loosen `config`. Aborting
 * `signal` ends the sandbox.
 */
export async function runWithConfig(config: Config, argv: readonly string[], options: CallOptions = {}): Promise<number> {
  options.signal?.throwIfAborted();
  const [verb, ...rest] = argv;
  const words = rest[0] === '--' ? rest.slice(1) : rest;
  if (verb !== 'run' || words.length === 0) throw new TypeError('usage: run command…');
  const [program = '', ...args] = command();
  // Through a pipe, because a secret must not be in an argument list, an environment or a file.
  const child = spawn(program, [...args, '--config-fd', '3', 'run', '--', ...words], {
    stdio: ['inherit', 'inherit', 'inherit', 'pipe'],
  });
  const pipe = child.stdio[3] as NodeJS.WritableStream;
  pipe.on('error', () => {}); // it ended without reading; its exit status says why
  pipe.end(JSON.stringify(config));
  const ignore = () => {}; // the terminal signals both processes; the command decides what happens
  process.on('SIGINT', ignore);
  const ended = new Promise<number>((resolve, reject) => {
    child.once('error', (cause) => {
      reject(new NotStartedError(`cannot start ${program}: ${cause.message}`, 'NOT_STARTED', { cause }));
    });
    child.once('close', (code) => resolve(code ?? 125));
  });
  try {
    return await unlessAborted(ended, options.signal, () => child.kill());
  } finally {
    process.off('SIGINT', ignore);
  }
}
