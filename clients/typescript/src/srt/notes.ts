import { createHash } from 'node:crypto';
import { chmodSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** @internal Notes for the launchers of commands that are wrapped already: where they run instead of in the sandbox that they were
 * wrapped for. The forms are in guest/launcher/protocol.md. The directory is the sandbox's, and goes with it. */
export class Notes {
  constructor(private readonly directory: string) {}

  /** Where the note for commands of this label is, if there is one. */
  path(label: string): string {
    return join(this.directory, createHash('sha256').update(label).digest('base64url'));
  }

  /** From now on such a command waits. Throws what a file throws that cannot be written. */
  wait(label: string): void {
    this.write(label, '');
  }

  /** Such a command runs in the sandbox with this launcher's socket. */
  lead(label: string, socket: string): void {
    this.write(label, socket);
  }

  /** Such a command does not run; it prints why. */
  refuse(label: string, why: string): void {
    this.write(label, why.replace(/\p{Cc}+/gu, ' ').replace(/^\/*/, ''));
  }

  /** Such a command runs in the sandbox that it was wrapped for. */
  remove(label: string): void {
    rmSync(this.path(label), { force: true });
  }

  /** Whole or not at all: a launcher may read it meanwhile. */
  private write(label: string, text: string): void {
    const path = this.path(label);
    try {
      writeFileSync(`${path}.new`, text);
      chmodSync(`${path}.new`, 0o600);
      renameSync(`${path}.new`, path);
    } catch (problem) {
      if ((problem as NodeJS.ErrnoException).code !== 'ENOENT') throw problem; // the sandbox has ended: no launcher reaches it
    }
  }
}
