import type { Connection } from './connection.js';
import { SandboxError } from './errors.js';
import { base64, type CallOptions } from './options.js';
import { bytes } from './result.js';

/** What is known of a file. */
export interface FileInfo {
  kind: 'file' | 'directory' | 'symlink' | 'other';
  is_dir: boolean;
  size: number;
  /** Permission bits, for example 0o644. */
  mode: number;
  /** When its content was last changed, to the millisecond. */
  mtime: Date;
  /** The same in nanoseconds since 1970, which a number could not hold. */
  mtime_ns: bigint;
}

/** One entry of a directory. */
export interface FileEntry extends FileInfo {
  name: string;
  /** Its bytes, when the name is not UTF-8; `name` then only resembles it. */
  name_bytes?: Buffer;
}

export interface ReadOptions extends CallOptions {
  /** A larger file is an error; 2 GiB by default. Commands decide how large their files are. */
  maxBytes?: number | undefined;
}

type WireInfo = Omit<FileInfo, 'mtime' | 'mtime_ns'> & { mtime: number; mtime_ns?: number | bigint };
type WireEntry = WireInfo & { name: string; name_bytes?: string };

const PIECE = 3 * 2 ** 20; // large files travel in pieces of this size …
const AHEAD = 3; // … of which so many are under way at a time

/** @internal A source of bytes that can be read anywhere. */
export interface Source {
  size: number;
  read(offset: number, length: number): Promise<Uint8Array> | Uint8Array;
}

/** @internal */
export async function stat(connection: Connection, path: string, { signal }: CallOptions): Promise<FileInfo> {
  return info(await connection.call<WireInfo>('stat', { path }, { signal, exact: true }));
}

/** @internal As `stat`, but of a link itself. */
export async function lstat(connection: Connection, path: string, options: CallOptions): Promise<Pick<FileInfo, 'kind' | 'mode'>> {
  try {
    await connection.call('read_link', { path }, options);
    return { kind: 'symlink', mode: 0o777 };
  } catch (problem) {
    if ((problem as { code?: unknown }).code !== 'EINVAL') throw problem;
    return stat(connection, path, options); // it is no link
  }
}

/** @internal */
export async function listFiles(connection: Connection, path: string, { signal }: CallOptions): Promise<FileEntry[]> {
  const { files } = await connection.call<{ files: WireEntry[] }>('list_files', { path }, { signal, exact: true });
  return files.map(({ name, name_bytes, ...rest }) => ({
    name,
    ...(name_bytes === undefined ? {} : { name_bytes: bytes(name_bytes) }),
    ...info(rest),
  }));
}

function info({ mtime, mtime_ns, ...rest }: WireInfo): FileInfo {
  const exact = BigInt(mtime_ns ?? Math.round(mtime * 1e9));
  return { ...rest, mtime: new Date(Number(exact / 1_000_000n)), mtime_ns: exact };
}

/** @internal Writes a whole file, whatever its size. */
export async function writeFrom(
  connection: Connection,
  path: string,
  source: Source,
  mode: number,
  { signal }: CallOptions,
): Promise<void> {
  const put = async (offset: number) => {
    const piece = await source.read(offset, Math.min(PIECE, source.size - offset));
    await connection.call('write_file', { path, content: base64(piece), mode, offset }, { signal });
  };
  await put(0); // creates or empties the file, so it must be done before the others
  await inParallel(laterPieces(source.size), AHEAD, put);
}

/** @internal Hands a whole file to `take`, piece by piece: the first one first, the others in any order. */
export async function readInto(
  connection: Connection,
  path: string,
  take: (offset: number, piece: Buffer, size: number) => Promise<void> | void,
  { signal }: CallOptions,
): Promise<void> {
  const get = async (offset: number) => {
    const params = { path, offset, length: PIECE };
    const { content, size } = await connection.call<{ content: string; size: number }>('read_file', params, { signal });
    await take(offset, bytes(content), size);
    return size;
  };
  await inParallel(laterPieces(await get(0)), AHEAD, get);
}

/** @internal */
export async function readWhole(connection: Connection, path: string, options: ReadOptions): Promise<Buffer> {
  const { maxBytes = 2 ** 31, signal } = options;
  const pieces = new Map<number, Buffer>();
  const take = (offset: number, piece: Buffer, size: number) => {
    if (size > maxBytes) throw new SandboxError(`${path} has ${size} bytes, more than ${maxBytes}`, 'TOO_LARGE', { data: { size } });
    pieces.set(offset, piece);
  };
  await readInto(connection, path, take, { signal });
  return Buffer.concat([...pieces].sort(([one], [other]) => one - other).map(([, piece]) => piece));
}

/** Where the pieces after the first begin. One by one: a file with a hole can claim to have any size. */
function* laterPieces(size: number): Iterable<number> {
  for (let offset = PIECE; offset < size; offset += PIECE) yield offset;
}

/** @internal Does `work` for every item, with at most `limit` under way at a time. The first failure ends it, when what is
 * under way is done. */
export async function inParallel<T>(items: Iterable<T>, limit: number, work: (item: T) => Promise<unknown>): Promise<void> {
  const queue = items[Symbol.iterator](); // shared: each worker takes the next item
  let failed = false;
  const worker = async () => {
    for (let next = queue.next(); !next.done && !failed; next = queue.next()) {
      await work(next.value).catch((problem: unknown) => {
        failed = true;
        throw problem;
      });
    }
  };
  const ended = await Promise.allSettled(Array.from({ length: limit }, worker));
  for (const one of ended) if (one.status === 'rejected') throw one.reason;
}
