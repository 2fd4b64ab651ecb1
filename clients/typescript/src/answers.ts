import type { Json } from './connection.js';

/** @internal How much output of one command may be on its way or unread. */
export const WINDOW = 512 * 1024;

/** @internal What a stream of answers asks of its connection. */
export interface Owner {
  /** The caller takes no more answers; `finished` when there are none. */
  leave(answers: Answers, finished: boolean): void;
  /** So many bytes have been read. */
  grant(id: number, bytes: number): void;
  /** There is a reason more (+1) or less (-1) for the program not to exit. */
  keepAlive(change: 1 | -1): void;
}

/** @internal The answers to one request, in order. One reader at a time. */
export class Answers {
  private readonly queue: Json[] = [];
  private problem: { reason: unknown } | undefined;
  private wake: (() => void) | undefined;
  private left = false;
  private isReason = false;
  private unread = 0;
  private stopListening: () => void = () => {};

  constructor(
    readonly id: number,
    /** Bytes of the request. */
    readonly size: number,
    /** Keep whole numbers that a JavaScript number cannot hold, as bigint. */
    readonly exact: boolean,
    private readonly owner: Owner,
  ) {}

  /** Whether the program must not exit before the last answer. */
  keepAlive(on: boolean): void {
    if (this.left || this.isReason === on) return;
    this.isReason = on;
    this.owner.keepAlive(on ? 1 : -1);
  }

  /** Leaves when `signal` is aborted; the reader gets the signal's reason. */
  obey(signal: AbortSignal | undefined): void {
    if (!signal) return;
    const abort = () => {
      this.queue.length = 0;
      this.fail(signal.reason);
      this.close();
    };
    signal.addEventListener('abort', abort, { once: true });
    this.stopListening = () => signal.removeEventListener('abort', abort);
  }

  /** The next answer. Rejects when the request failed or was left. */
  async next(): Promise<Json> {
    for (;;) {
      const first = this.queue.shift();
      if (first) return first;
      if (this.problem) {
        this.finish();
        throw this.problem.reason;
      }
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  put(answer: Json): void {
    if (this.left) return;
    this.queue.push(answer);
    this.wake?.();
  }

  fail(reason: unknown): void {
    this.problem ??= { reason };
    this.wake?.();
  }

  /** The reader has taken so many bytes of output: the server may send as many again. */
  consumed(bytes: number): void {
    this.unread += bytes;
    if (this.unread < WINDOW / 2 || this.left) return;
    this.owner.grant(this.id, this.unread);
    this.unread = 0;
  }

  /** The last answer has come. */
  finish(): void {
    this.leave(true);
  }

  /** Takes no more answers: what the request still runs is cancelled. */
  close(): void {
    this.leave(false);
  }

  private leave(finished: boolean): void {
    if (this.left) return;
    this.keepAlive(false);
    this.left = true;
    this.stopListening();
    this.owner.leave(this, finished);
  }
}
