import { Duplex } from 'node:stream';
import type { Answers } from './answers.js';
import type { Connection } from './connection.js';
import { base64 } from './options.js';
import { bytes } from './result.js';

const PIECE = 2 ** 20; // of data, in one request

/** @internal A connection to a port inside, as a stream. Data is taken from the sandbox as the reader asks for it. */
export class DialStream extends Duplex {
  private over = false; // the connection has ended in both directions

  constructor(
    private readonly connection: Connection,
    private readonly answers: Answers,
    allowHalfOpen: boolean,
  ) {
    super({ allowHalfOpen });
  }

  override _read(): void {
    this.pull().catch((problem: Error) => this.destroy(problem));
  }

  private async pull(): Promise<void> {
    for (;;) {
      const answer = await this.answers.next();
      if (answer['end'] === true) {
        this.over = true;
        this.answers.finish();
      }
      if (this.over || answer['eof'] === true) {
        this.push(null); // the other side may still read
        return;
      }
      const data = bytes(answer['data']);
      this.answers.consumed(data.length);
      if (data.length > 0) {
        this.push(data);
        return;
      }
    }
  }

  override _write(data: Buffer, _encoding: string, done: (problem?: Error | null) => void): void {
    this.send(data).then(() => done(), done);
  }

  override _final(done: (problem?: Error | null) => void): void {
    if (this.over) done();
    else this.ask({ end: true }).then(() => done(), done);
  }

  override _destroy(problem: Error | null, done: (problem?: Error | null) => void): void {
    this.answers.close();
    done(problem);
  }

  private async send(data: Buffer): Promise<void> {
    for (let at = 0; at < data.length; at += PIECE) await this.ask({ data: base64(data.subarray(at, at + PIECE)) });
  }

  private async ask(params: Record<string, unknown>): Promise<void> {
    await this.connection.call('input', { request: this.answers.id, ...params });
  }
}
