import type { Answers } from './answers.js';
import type { Json } from './connection.js';
import { chunksOf, type Chunk } from './result.js';

/** @internal */
export type StreamName = Chunk['stream'];

/**
 * @internal The output of one command, shared by those who read it: a stream that somebody claimed is theirs, the others go to
 * whoever iterates the process. What is unread is bounded, because credit is given only for what was taken.
 */
export class ProcessOutput {
  /** The answer that says how the command ended. */
  last: Json | undefined;
  private readonly unread: Chunk[] = [];
  private readonly claimed = new Set<StreamName>();
  private readonly dropped = new Set<StreamName>();
  private receiving: Promise<void> | undefined;
  private problem: { reason: unknown } | undefined;

  constructor(private readonly answers: Answers) {}

  /** From now on only `next(stream)` gives what comes on that stream. */
  claim(stream: StreamName): void {
    this.claimed.add(stream);
  }

  /** Nobody wants that stream any more: what comes on it is thrown away. */
  drop(stream: StreamName): void {
    this.dropped.add(stream);
    for (let at = this.unread.length - 1; at >= 0; at--) {
      if (this.unread[at]!.stream === stream) this.taken(this.unread.splice(at, 1)[0]!);
    }
  }

  /** The next piece of that stream, or of those that nobody claimed; none when the command has ended. */
  async next(stream?: StreamName): Promise<Chunk | undefined> {
    for (;;) {
      const at = this.unread.findIndex((one) => (stream ? one.stream === stream : !this.claimed.has(one.stream)));
      if (at >= 0) return this.unread.splice(at, 1)[0];
      if (this.problem) throw this.problem.reason;
      if (this.last) return undefined;
      // One reader receives for all of them.
      await (this.receiving ??= this.receive().finally(() => (this.receiving = undefined)));
    }
  }

  /** The reader is done with a piece: as much may be sent again. */
  taken(chunk: Chunk): void {
    this.answers.consumed(chunk.data.length);
  }

  private async receive(): Promise<void> {
    try {
      const answer = await this.answers.next();
      if (typeof answer['exit_code'] === 'number') {
        this.answers.finish();
        this.last = answer;
        return;
      }
      for (const chunk of chunksOf(answer)) {
        if (this.dropped.has(chunk.stream)) this.taken(chunk);
        else this.unread.push(chunk);
      }
    } catch (reason) {
      this.problem = { reason };
    }
  }
}
