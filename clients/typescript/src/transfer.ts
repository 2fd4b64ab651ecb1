import type { Stats as FileStats } from 'node:fs';
import { mkdir, type FileHandle } from 'node:fs/promises';
import { basename, dirname, posix, resolve } from 'node:path';
import type { Connection } from './connection.js';
import { Directory } from './directory.js';
import { SandboxError } from './errors.js';
import { inParallel, listFiles, lstat, readInto, writeFrom, type FileEntry, type FileInfo } from './files.js';
import type { CallOptions } from './options.js';

/** What `upload` and `download` left out, and why: sockets, pipes and devices, and names that are not UTF-8. */
export interface Transferred {
  skipped: { path: string; reason: string }[];
}

const FILES = 8; // so many files are under way at a time
const DEEPEST = 256;
const UMASK = 0o022; // what the sandbox takes off the mode of something new
const NOT_UTF8 = 'its name is not UTF-8';
const SPECIAL = 'it is neither a file, a directory nor a symbolic link';

/** @internal Copies a file, a link or a whole directory of the host into the sandbox. */
export async function upload(connection: Connection, from: string, to: string, options: CallOptions): Promise<Transferred> {
  const source = resolve(from);
  const parent = await Directory.containing(dirname(source));
  try {
    return await new Upload(connection, options).run(parent, basename(source), to);
  } finally {
    await parent.close();
  }
}

class Upload {
  private readonly skipped: Transferred['skipped'] = [];
  private readonly narrow: [path: string, mode: number][] = [];

  constructor(
    private readonly connection: Connection,
    private readonly options: CallOptions,
  ) {}

  async run(parent: Directory, name: string, to: string): Promise<Transferred> {
    const found = await parent.lstat(name);
    if (found.isDirectory()) await this.directory(await parent.enter(name), found, to);
    else await this.other(parent, name, found, to);
    // Last, and the innermost first: into a directory that forbids it nothing could have been put.
    for (const [path, mode] of this.narrow.reverse()) await this.call('chmod', { path, mode });
    return { skipped: this.skipped };
  }

  private async directory(directory: Directory, { mode }: FileStats, to: string, depth = 0): Promise<void> {
    try {
      checkDepth(to, depth);
      await this.replaceUnlessDirectory(to);
      await this.call('mkdir', { path: to, mode: (mode & 0o777) | 0o700 });
      if (differs(mode, 0o700)) this.narrow.push([to, mode & 0o777]);
      const [directories, others] = await this.sorted(directory, to);
      await inParallel(others, FILES, ([name, found]) => this.other(directory, name, found, posix.join(to, name)));
      for (const [name, found] of directories) {
        await this.directory(await directory.enter(name), found, posix.join(to, name), depth + 1);
      }
    } finally {
      await directory.close();
    }
  }

  private async sorted(directory: Directory, to: string): Promise<[Named[], Named[]]> {
    const directories: Named[] = [];
    const others: Named[] = [];
    for (const raw of await directory.names()) {
      const name = raw.toString();
      if (!Buffer.from(name).equals(raw)) {
        this.skipped.push({ path: posix.join(to, name), reason: NOT_UTF8 });
        continue;
      }
      const found = await directory.lstat(name);
      (found.isDirectory() ? directories : others).push([name, found]);
    }
    return [directories, others];
  }

  private async other(parent: Directory, name: string, found: FileStats, to: string): Promise<void> {
    if (found.isSymbolicLink()) {
      await this.remove(to);
      await this.call('symlink', { target: await parent.readlink(name), path: to });
    } else if (found.isFile()) {
      await this.file(parent, name, to);
    } else {
      this.skipped.push({ path: to, reason: SPECIAL });
    }
  }

  private async file(parent: Directory, name: string, to: string): Promise<void> {
    const file = await parent.openFile(name);
    try {
      const found = await file.stat();
      if (!found.isFile()) return void this.skipped.push({ path: to, reason: SPECIAL }); // it has just been replaced
      const { size, mode } = found;
      const read = async (position: number, length: number) => {
        const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, position);
        return buffer.subarray(0, bytesRead);
      };
      await this.remove(to); // what is there keeps its mode, and might be a link
      // Writable meanwhile, because each piece opens it again.
      await writeFrom(this.connection, to, { size, read }, (mode & 0o777) | 0o600, this.options);
      if (differs(mode, 0o600)) await this.call('chmod', { path: to, mode: mode & 0o777 });
    } finally {
      await file.close();
    }
  }

  private async replaceUnlessDirectory(path: string): Promise<void> {
    const there = await lstat(this.connection, path, this.options).catch(ignoring('ENOENT'));
    if (there && there.kind !== 'directory') await this.remove(path);
  }

  private async remove(path: string): Promise<void> {
    await this.call('remove', { path }).catch(ignoring('ENOENT'));
  }

  private call(method: string, params: Record<string, unknown>) {
    return this.connection.call(method, params, this.options);
  }
}

type Found = Pick<FileInfo, 'kind' | 'mode'>;
type Named = [name: string, found: FileStats];

/** @internal Copies a file, a link or a whole directory of the sandbox to the host. */
export async function download(connection: Connection, from: string, to: string, options: CallOptions): Promise<Transferred> {
  const target = resolve(to);
  options.signal?.throwIfAborted();
  await mkdir(dirname(target), { recursive: true });
  const parent = await Directory.containing(dirname(target));
  try {
    return await new Download(connection, options).run(from, parent, basename(target));
  } finally {
    await parent.close();
  }
}

class Download {
  private readonly skipped: Transferred['skipped'] = [];

  constructor(
    private readonly connection: Connection,
    private readonly options: CallOptions,
  ) {}

  async run(from: string, parent: Directory, name: string): Promise<Transferred> {
    await this.one(from, await lstat(this.connection, from, this.options), parent, name);
    return { skipped: this.skipped };
  }

  private async one(from: string, found: Found, parent: Directory, name: string, depth = 0): Promise<void> {
    if (found.kind === 'directory') await this.directory(from, found, await parent.makeDirectory(name), depth);
    else if (found.kind === 'symlink') await this.link(from, parent, name);
    else if (found.kind === 'file') await this.file(from, found, parent, name);
    else this.skipped.push({ path: from, reason: SPECIAL });
  }

  private async directory(from: string, { mode }: Found, into: Directory, depth: number): Promise<void> {
    try {
      checkDepth(from, depth);
      const entries = (await listFiles(this.connection, from, this.options)).filter((entry) => this.usable(from, entry));
      const [directories, others] = [true, false].map((is) => entries.filter((one) => (one.kind === 'directory') === is));
      await inParallel(others!, FILES, (entry) => this.one(posix.join(from, entry.name), entry, into, entry.name));
      for (const entry of directories!) await this.one(posix.join(from, entry.name), entry, into, entry.name, depth + 1);
      await into.chmod(mode & 0o777); // last: it may forbid what was done here
    } finally {
      await into.close();
    }
  }

  /** A name comes from inside: one that leads elsewhere must not be used on the host. */
  private usable(from: string, { name, name_bytes }: FileEntry): boolean {
    const leadsElsewhere = name === '' || name === '.' || name === '..' || /[/\0]/.test(name);
    if (!leadsElsewhere && !name_bytes) return true;
    this.skipped.push({ path: posix.join(from, name), reason: leadsElsewhere ? 'its name leads elsewhere' : NOT_UTF8 });
    return false;
  }

  private async link(from: string, parent: Directory, name: string): Promise<void> {
    const { target } = await this.connection.call<{ target: string }>('read_link', { path: from }, this.options);
    await parent.createLink(name, target);
  }

  private async file(from: string, { mode }: Found, parent: Directory, name: string): Promise<void> {
    let file: FileHandle | undefined;
    try {
      const take = async (at: number, piece: Buffer) => {
        file ??= await parent.createFile(name); // not before the first piece has come: perhaps it cannot be read
        await file.write(piece, 0, piece.length, at);
      };
      await readInto(this.connection, from, take, this.options);
      await file!.chmod(mode & 0o777);
    } finally {
      await file?.close();
    }
  }
}

/** Whether something new that gets these bits in any case has another mode than it should. */
function differs(mode: number, always: number): boolean {
  return (mode & 0o777) !== (((mode & 0o777) | always) & ~UMASK);
}

/** Each level keeps a directory open. */
function checkDepth(path: string, depth: number): void {
  if (depth > DEEPEST) throw new SandboxError(`${path} lies more than ${DEEPEST} directories deep`, 'TOO_LARGE');
}

function ignoring(code: string): (problem: { code?: unknown }) => undefined {
  return (problem) => {
    if (problem.code !== code) throw problem;
    return undefined;
  };
}
