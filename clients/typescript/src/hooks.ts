import { badConfig } from './errors.js';
import type { Json } from './connection.js';
import type { Ask, AskAnswer } from './events.js';
import { bytes } from './result.js';

type MaybePromise<T> = T | Promise<T>;

/** A request on its way out, as a hook sees it: with placeholders, never with secrets. */
export interface HttpRequest {
  method: string;
  url: string;
  headers: [string, string][];
  /** Not there with `withoutBodies`. */
  body?: Buffer;
}

export interface HttpResponse {
  status: number;
  headers: [string, string][];
  body?: Buffer;
}

/** What a hook on a request or response returns: the message (changed or not), only what it changes, or null to refuse it.
 * A part that is left out stays as it was; a `body` that is empty empties it. */
export type Changed<Message> = Partial<Message> | null;

/** The arguments of the hooks before and after each file operation (docs/vfs.md). */
interface FileArguments {
  stat: Both<[path: string]>;
  readdir: Both<[path: string]>;
  readlink: Both<[path: string]>;
  remove: Both<[path: string]>;
  listxattr: Both<[path: string]>;
  open: Both<[path: string, flags: number]>;
  create: Both<[path: string, mode: number]>;
  mkdir: Both<[path: string, mode: number]>;
  mknod: Both<[path: string, mode: number]>;
  read: { before: [path: string, size: number, offset: number]; after: [path: string, size: number] };
  write: { before: [path: string, size: number, offset: number]; after: [path: string, size: number] };
  sync: Both<[path: string]>;
  close: Both<[path: string]>;
  rename: Both<[from: string, to: string]>;
  link: Both<[from: string, to: string]>;
  symlink: Both<[target: string, path: string]>;
  setattr: Both<[path: string, changes: Record<string, number>]>;
  getxattr: Both<[path: string, name: string]>;
  setxattr: Both<[path: string, name: string]>;
  removexattr: Both<[path: string, name: string]>;
}
type Both<Args> = { before: Args; after: Args };

type FileHook<Args extends unknown[]> = (...args: Args) => MaybePromise<void>;

/** `beforeOpen`, `beforeCreate`, `beforeWrite` and so on, for every operation. Throwing refuses the operation. */
export type BeforeHooks = {
  [Op in keyof FileArguments as `before${Capitalize<Op>}`]?: FileHook<FileArguments[Op]['before']>;
};
/** `afterOpen`, `afterWrite` and so on, for every operation. */
export type AfterHooks = {
  [Op in keyof FileArguments as `after${Capitalize<Op>}`]?: FileHook<FileArguments[Op]['after']>;
};

/**
 * Your own code on the path of requests and of files under `vfs.mounts`. Throwing refuses, and the error's message is the
 * reason that the command gets. A hook has 30 seconds; silence refuses.
 *
 * A file that does not exist yet is created, not opened: guard it with `beforeCreate` as well as `beforeOpen`.
 */
export interface Hooks extends BeforeHooks, AfterHooks {
  onRequest?(request: HttpRequest): MaybePromise<Changed<HttpRequest>>;
  onResponse?(response: HttpResponse, request: HttpRequest): MaybePromise<Changed<HttpResponse>>;
  /** Called with the server's certificates (DER, its own first). Throwing or returning false refuses the connection. */
  onTlsVerify?(host: string, certificates: Buffer[]): MaybePromise<boolean | void>;
  /** Answers a question to the owner (`network.ask`, docs/asks.md); null or nothing leaves it to others. Throwing denies, and so
   * does silence for the question's `timeout`. */
  onAsk?(ask: Ask): MaybePromise<AskAnswer | null | undefined>;
  /** Leaves bodies out, so that they stream past instead of being held in memory for the hooks. */
  withoutBodies?: boolean;
}

const OPERATIONS: (keyof FileArguments)[] = [
  'stat', 'readdir', 'readlink', 'remove', 'listxattr', 'open', 'create', 'mkdir', 'mknod', 'read', 'write', 'sync',
  'close', 'rename', 'link', 'symlink', 'setattr', 'getxattr', 'setxattr', 'removexattr',
];

/** The protocol's name of each hook. */
const NAMES = new Map<string, string>([
  ['onRequest', 'on_request'],
  ['onResponse', 'on_response'],
  ['onTlsVerify', 'on_tls_verify'],
  ['onAsk', 'on_ask'],
  ...OPERATIONS.flatMap((operation) => {
    const capitalized = operation[0]!.toUpperCase() + operation.slice(1);
    return [
      [`before${capitalized}`, `before_${operation}`],
      [`after${capitalized}`, `after_${operation}`],
    ] as [string, string][];
  }),
]);

/** @internal The hooks of an object, ready for use. Throws ConfigError for one that does not exist: a guard with a spelling
 * mistake would guard nothing. */
export class HookTable {
  /** The parameter of `create`. */
  readonly names: Json = {};
  private readonly functions = new Map<string, (...args: never[]) => unknown>();

  constructor(hooks: Hooks) {
    if (typeof hooks !== 'object' || hooks === null || Array.isArray(hooks)) {
      throw badConfig('must be an object with functions', 'hooks');
    }
    const { withoutBodies } = hooks;
    if (withoutBodies !== undefined && typeof withoutBodies !== 'boolean') {
      throw badConfig('must be true or false', 'hooks.withoutBodies');
    }
    for (const name of members(hooks)) this.add(hooks, name);
  }

  private add(hooks: Hooks, name: string): void {
    const hook = (hooks as Record<string, unknown>)[name];
    const wire = NAMES.get(name);
    if (!wire) {
      if (name !== 'withoutBodies' && looksLikeHook(hooks, name)) throw unknownHook(name);
    } else if (typeof hook === 'function') {
      this.functions.set(wire, hook.bind(hooks) as never);
      this.names[wire] = wire === 'on_request' || wire === 'on_response' ? { body: !hooks.withoutBodies } : {};
    } else if (hook !== undefined) {
      throw badConfig('must be a function', `hooks.${name}`);
    }
  }

  /** Answers one question of the sandbox. An error refuses, with its message as the reason. */
  async answer(params: Json): Promise<Json> {
    const name = String(params['name']);
    try {
      const hook = this.functions.get(name);
      if (!hook) throw new Error(`this client has no hook ${name}`);
      return await ask(name, hook as never, params);
    } catch (problem) {
      const reason = problem instanceof Error ? problem.message : String(problem);
      return { blocked: reason || `blocked by ${name}` };
    }
  }
}

async function ask(name: string, hook: (...args: unknown[]) => unknown, params: Json): Promise<Json> {
  switch (name) {
    case 'on_request':
      return changedMessage(name, 'request', await hook(shown(params['request'])));
    case 'on_response':
      return changedMessage(name, 'response', await hook(shown(params['response']), shown(params['request'])));
    case 'on_tls_verify': {
      const certificates = (params['certificates'] as string[]).map(bytes);
      const verdict = await hook(params['host'], certificates);
      if (verdict === undefined || verdict === true) return {};
      return { blocked: `${name} does not accept the certificates of ${String(params['host'])}` };
    }
    case 'on_ask': {
      const answer = await hook(params['ask']);
      return answer === null || answer === undefined ? {} : { answer };
    }
    default:
      await hook(...(params['args'] as unknown[]));
      return {};
  }
}

/** A message as the hook sees it. */
function shown(message: unknown): Json {
  const { body, ...rest } = message as Json;
  return typeof body === 'string' ? { ...rest, body: bytes(body) } : rest;
}

/** The hook's answer as the protocol wants it: a part that is absent is unchanged, one that is there is meant, also when it
 * is empty. */
function changedMessage(name: string, key: 'request' | 'response', changed: unknown): Json {
  if (changed === null) return { blocked: `blocked by ${name}` };
  if (typeof changed !== 'object' || Array.isArray(changed)) throw new TypeError(`${name} must return the ${key} or null`);
  const { body, ...rest } = changed as Json;
  if (body === undefined) return { [key]: rest };
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) {
    throw new TypeError(`${name}: body must be a Buffer, a Uint8Array or a string`);
  }
  return { [key]: { ...rest, body: Buffer.from(body as Uint8Array).toString('base64') } };
}

/** The names of everything that an object and its classes have. */
function members(hooks: object): Set<string> {
  const names = new Set<string>();
  for (let at = hooks; at && at !== Object.prototype; at = Object.getPrototypeOf(at) as object) {
    for (const name of Object.getOwnPropertyNames(at)) if (name !== 'constructor') names.add(name);
  }
  return names;
}

/** In an object literal everything must be a hook; an object of a class may have other members as well. */
function looksLikeHook(hooks: object, name: string): boolean {
  const parent: unknown = Object.getPrototypeOf(hooks);
  const plain = parent === Object.prototype || parent === null;
  return plain || /^_*(on|before|after)(_|[A-Z])/.test(name) || NAMES.has(nearest(name) ?? '');
}

function unknownHook(name: string) {
  const meant = nearest(name);
  return badConfig(`there is no hook ${JSON.stringify(name)}${meant ? `; did you mean ${meant}?` : ''}`, 'hooks');
}

/** The hook whose name differs from `name` in no more than three letters, case and underscores aside. */
function nearest(name: string): string | undefined {
  const plain = (text: string) => text.replaceAll('_', '').toLowerCase();
  const ranked = [...NAMES.keys()].map((known) => [distance(plain(name), plain(known)), known] as const);
  const [best] = ranked.sort(([one], [other]) => one - other);
  return best && best[0] <= Math.min(3, name.length / 3) ? best[1] : undefined;
}

/** How many letters must be inserted, left out or replaced. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 0; i < one.length; i++) {
    const next = [i + 1];
    for (let j = 0; j < other.length; j++) {
      next.push(Math.min(row[j + 1]! + 1, next[j]! + 1, row[j]! + (one[i] === other[j] ? 0 : 1)));
    }
    row = next;
  }
  return row[other.length]!;
}
