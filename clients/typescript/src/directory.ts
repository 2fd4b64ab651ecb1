import { constants, existsSync } from 'node:fs';
import * as fs from 'node:fs/promises';
import { join } from 'node:path';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
const BY_DESCRIPTOR = existsSync('/proc/self/fd');

/**
 * @internal An open directory of the host. Names in it are looked up in this very directory: no link is ever followed,
 * also when somebody (a command in the sandbox may be able to write there) replaces a directory by a link meanwhile. Where
 * there is no /proc, names are looked up by path.
 */
export class Directory {
  private constructor(
    private readonly handle: fs.FileHandle,
    private readonly path: string,
  ) {}

  /** Throws ENOTDIR or ELOOP when it is no directory, or a link to one. */
  static async open(path: string): Promise<Directory> {
    return new Directory(await fs.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), path);
  }

  /** The directory that `path` lies in, which the caller has named: links on the way to it are followed. */
  static async containing(path: string): Promise<Directory> {
    return new Directory(await fs.open(path, O_RDONLY | O_DIRECTORY), path);
  }

  private at(name: string): string {
    return BY_DESCRIPTOR ? `/proc/self/fd/${this.handle.fd}/${name}` : join(this.path, name);
  }

  enter(name: string): Promise<Directory> {
    return Directory.open(this.at(name));
  }

  async names(): Promise<Buffer[]> {
    const path = BY_DESCRIPTOR ? `/proc/self/fd/${this.handle.fd}` : this.path;
    return fs.readdir(path, { encoding: 'buffer' });
  }

  lstat(name: string) {
    return fs.lstat(this.at(name));
  }

  readlink(name: string): Promise<string> {
    return fs.readlink(this.at(name));
  }

  /** Opens a file for reading; a fifo that took its place does not hang. */
  openFile(name: string): Promise<fs.FileHandle> {
    return fs.open(this.at(name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  }

  /** A new file in the place of what is there, unless that is a directory. */
  async createFile(name: string): Promise<fs.FileHandle> {
    await this.clear(name);
    return fs.open(this.at(name), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  }

  async createLink(name: string, target: string): Promise<void> {
    await this.clear(name);
    await fs.symlink(target, this.at(name));
  }

  /** The directory of that name, which is made unless there is one; a link in its place is removed. */
  async makeDirectory(name: string): Promise<Directory> {
    const there = await this.lstat(name).catch(() => undefined);
    if (!there?.isDirectory()) {
      await this.clear(name);
      await fs.mkdir(this.at(name), 0o700);
    }
    return this.enter(name);
  }

  async chmod(mode: number): Promise<void> {
    await this.handle.chmod(mode);
  }

  async close(): Promise<void> {
    await this.handle.close();
  }

  private async clear(name: string): Promise<void> {
    await fs.unlink(this.at(name)).catch((problem: NodeJS.ErrnoException) => {
      if (problem.code !== 'ENOENT') throw problem;
    });
  }
}
