import { spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { NotStartedError } from './errors.js';

/** @internal Two byte streams to a server, whatever is between. */
export interface Transport {
  readonly input: Readable;
  readonly output: Writable;
  /** Resolves when the other side is gone; to why, if that is known. */
  readonly gone: Promise<string | undefined>;
  /** Tells the other side that nothing more will come. */
  end(): void;
  /** Ends the connection without the other side's help. */
  kill(): void;
  /** Whether this connection alone keeps the program running. */
  keepAlive(on: boolean): void;
}

/** @internal A server of this program's own, by default in its directory: it ends when the program does. */
export async function startServer(command: readonly string[], cwd?: string): Promise<Transport> {
  const [program = '', ...args] = command;
  const server = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'], ...(cwd === undefined ? {} : { cwd }) });
  await new Promise<void>((resolve, reject) => {
    server.once('spawn', resolve);
    server.once('error', (cause) => {
      reject(new NotStartedError(`cannot start ${program}: ${cause.message}`, 'NOT_STARTED', { cause }));
    });
  });
  const gone = new Promise<string | undefined>((resolve) => {
    server.once('close', (code, signal) => {
      resolve(code === 0 ? undefined : `the sandbox process ended with ${signal ?? `status ${code}`}`);
    });
  });
  // A child's pipes are sockets, which is how they can be told not to keep the program running.
  // In Bun, the streams of a child have neither.
  const handles: { ref?(): unknown; unref?(): unknown }[] = [server, server.stdin as Partial<Socket>, server.stdout as Partial<Socket>];
  return {
    input: server.stdout,
    output: server.stdin,
    gone,
    end: () => server.stdin.end(),
    kill: () => void server.kill('SIGKILL'),
    keepAlive: (on) => handles.forEach((handle) => (on ? handle.ref?.() : handle.unref?.())),
  };
}

/** @internal The socket of a sandbox that runs already. Rejects with the operating system's error. */
export async function connectSocket(path: string): Promise<Transport> {
  const socket = connect(path);
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  const gone = new Promise<undefined>((resolve) => socket.once('close', () => resolve(undefined)));
  return {
    input: socket,
    output: socket,
    gone,
    end: () => socket.end(),
    kill: () => void socket.destroy(),
    keepAlive: (on) => void (on ? socket.ref() : socket.unref()),
  };
}
