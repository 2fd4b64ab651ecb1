import type { Connection } from './connection.js';
import { FileError } from './errors.js';
import * as files from './files.js';
import type { FileEntry, FileInfo, ReadOptions } from './files.js';
import type { CallOptions } from './options.js';
import * as transfer from './transfer.js';
import type { Transferred } from './transfer.js';

export interface WriteOptions extends CallOptions {
  mode?: number | undefined;
}

/** The files of a sandbox. Every path is one inside, and what a command there may do is what these methods can do. They
 * throw FileError. */
export abstract class SandboxFiles {
  /** @internal */
  protected constructor(protected readonly connection: Connection) {}

  /** Creates or replaces a file. `mode` is that of a new file. */
  async writeFile(path: string, content: string | Uint8Array, options: number | WriteOptions = {}): Promise<void> {
    const { mode = 0o644, signal } = typeof options === 'number' ? { mode: options } : options;
    const data = typeof content === 'string' ? Buffer.from(content) : content;
    const source = { size: data.length, read: (at: number, length: number) => data.subarray(at, at + length) };
    await files.writeFrom(this.connection, path, source, mode, { signal });
  }

  async readFile(path: string, options: ReadOptions = {}): Promise<Buffer> {
    return files.readWhole(this.connection, path, options);
  }

  /** A file as text; bytes that are not UTF-8 become U+FFFD. */
  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return (await this.readFile(path, options)).toString();
  }

  async listFiles(path: string, options: CallOptions = {}): Promise<FileEntry[]> {
    return files.listFiles(this.connection, path, options);
  }

  async stat(path: string, options: CallOptions = {}): Promise<FileInfo> {
    return files.stat(this.connection, path, options);
  }

  async exists(path: string, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (problem) {
      if (problem instanceof FileError && (problem.code === 'ENOENT' || problem.code === 'ENOTDIR')) return false;
      throw problem;
    }
  }

  /** Makes a directory and, unless `parents` is false, those above it. */
  async mkdir(path: string, options: CallOptions & { mode?: number; parents?: boolean } = {}): Promise<void> {
    const { signal, ...rest } = options;
    await this.connection.call('mkdir', { path, ...rest }, { signal });
  }

  async remove(path: string, options: CallOptions & { recursive?: boolean | undefined } = {}): Promise<void> {
    const { signal, ...rest } = options;
    await this.connection.call('remove', { path, ...rest }, { signal });
  }

  async rename(from: string, to: string, options: CallOptions = {}): Promise<void> {
    await this.connection.call('rename', { old: from, new: to }, options);
  }

  /** Changes the permissions of a file or directory; a link is followed. */
  async chmod(path: string, mode: number, options: CallOptions = {}): Promise<void> {
    await this.connection.call('chmod', { path, mode }, options);
  }

  /** Makes a symbolic link at `path`. */
  async symlink(target: string, path: string, options: CallOptions = {}): Promise<void> {
    await this.connection.call('symlink', { target, path }, options);
  }

  async readlink(path: string, options: CallOptions = {}): Promise<string> {
    return (await this.connection.call<{ target: string }>('read_link', { path }, options)).target;
  }

  /** Copies a file or a whole directory of the host to the path `to` inside. Links are copied as links and never followed.
   * Permissions are kept; other things that are there stay. */
  async upload(from: string, to: string, options: CallOptions = {}): Promise<Transferred> {
    return transfer.upload(this.connection, from, to, options);
  }

  /** Copies a file or a whole directory from inside to the path `to` on the host. Links are copied as links and never
   * followed, neither inside nor on the host: whoever uses the copy should know that they lead where a command chose. */
  async download(from: string, to: string, options: CallOptions = {}): Promise<Transferred> {
    return transfer.download(this.connection, from, to, options);
  }
}
