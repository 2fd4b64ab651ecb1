import { Readable, Writable } from 'node:stream';
import type { Process } from './process.js';
import type { ProcessOutput, StreamName } from './process-output.js';

/** @internal One output of a command as a stream. Data is taken from the sandbox as the reader asks for it. */
export class OutputStream extends Readable {
  constructor(
    private readonly output: ProcessOutput,
    private readonly stream: StreamName,
  ) {
    super();
    output.claim(stream);
  }

  override _read(): void {
    this.output.next(this.stream).then(
      (chunk) => {
        if (!chunk) return void this.push(null);
        this.push(chunk.data);
        this.output.taken(chunk);
      },
      (problem: Error) => this.destroy(problem),
    );
  }

  override _destroy(problem: Error | null, done: (problem?: Error | null) => void): void {
    this.output.drop(this.stream);
    done(problem);
  }
}

/** @internal The input of a command as a stream. Its end is the end of input; destroying it is, too. */
export class InputStream extends Writable {
  private finished = false;

  constructor(private readonly command: Process) {
    super({ decodeStrings: true });
  }

  override _write(data: Buffer, _encoding: string, done: (problem?: Error | null) => void): void {
    this.command.write(data).then(() => done(), (problem: unknown) => done(brokenPipe(problem)));
  }

  override _final(done: (problem?: Error | null) => void): void {
    this.finished = true;
    this.command.closeStdin().then(() => done(), () => done()); // it reads no more: then there is nothing to end
  }

  override _destroy(problem: Error | null, done: (problem?: Error | null) => void): void {
    if (!this.finished) this.command.closeStdin().catch(() => {});
    done(problem);
  }
}

/** What a pipe says when its reader is gone. */
function brokenPipe(problem: unknown): Error {
  if ((problem as { code?: unknown }).code !== 'NO_SUCH_REQUEST') return problem as Error;
  return Object.assign(new Error('write EPIPE', { cause: problem }), { code: 'EPIPE', syscall: 'write' });
}
