import type { IgnoreViolationsConfig } from './config.js';

/** Something that a command tried and was refused. */
export interface SandboxViolationEvent {
  line: string;
  command?: string;
  encodedCommand?: string;
  timestamp: Date;
}

const KEPT = 100;
const KEY_LENGTH = 100;

/** @internal What stands for a command in labels and violations: the first 100 characters of its key. */
export function encoded(key: string): string {
  return Buffer.from(key.slice(0, KEY_LENGTH)).toString('base64');
}

/** The last hundred violations, and who wants to hear of them. */
export class SandboxViolationStore {
  private kept: SandboxViolationEvent[] = [];
  private total = 0;
  private readonly listeners = new Set<(violations: SandboxViolationEvent[]) => void>();

  addViolation(violation: SandboxViolationEvent): void {
    this.kept = [...this.kept, { ...violation, line: oneLine(violation.line) }].slice(-KEPT);
    this.total++;
    this.notify();
  }

  /** The newest `limit` of them, oldest first. */
  getViolations(limit: number = KEPT): SandboxViolationEvent[] {
    return limit > 0 ? this.kept.slice(-limit) : [];
  }

  getCount(): number {
    return this.kept.length;
  }

  /** How many there ever were. */
  getTotalCount(): number {
    return this.total;
  }

  getViolationsForCommand(command: string): SandboxViolationEvent[] {
    const wanted = encoded(command);
    return this.kept.filter(({ encodedCommand }) => encodedCommand === wanted);
  }

  clear(): void {
    this.kept = [];
    this.notify();
  }

  /** Calls `listener` with all that are kept, now and after each change; returns what ends that. */
  subscribe(listener: (violations: SandboxViolationEvent[]) => void): () => void {
    this.listeners.add(listener);
    listener(this.getViolations());
    return () => void this.listeners.delete(listener);
  }

  private notify(): void {
    for (const listener of [...this.listeners]) listener(this.getViolations());
  }
}

/** @internal Whether the settings say not to report it. */
export function ignored(line: string, command: string | undefined, rules: IgnoreViolationsConfig = {}): boolean {
  return Object.entries(rules).some(
    ([part, texts]) => (part === '*' || command?.includes(part)) && texts.some((text) => line.includes(text)),
  );
}

/** A violation holds names that a command chose. On the one line that is shown of it there is nothing that a terminal obeys, that
 * cannot be seen, or that ends the block which `annotateStderrWithSandboxFailures` writes. */
function oneLine(text: string): string {
  return text
    .replace(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ')
    .replace(/[<>]/g, '')
    .trim();
}
