/** Checks of settings, in the manner of zod: `parse` throws, `safeParse` tells. They look at the shape; what a setting means, and
 * whether this machine can do it, `initialize` finds out. */
import { isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { checkCredentials, CREDENTIAL_KEYS } from './credential-checks.js';
import type {
  CredentialsConfig,
  FilesystemConfig,
  IgnoreViolationsConfig,
  NetworkConfig,
  SandboxRuntimeConfig,
} from './config.js';

export interface SchemaIssue {
  code: string;
  path: (string | number)[];
  message: string;
}

/** What is wrong with settings. */
export class SchemaError extends Error {
  constructor(readonly issues: SchemaIssue[]) {
    super(JSON.stringify(issues, undefined, 2));
    this.name = 'ZodError'; // what programs that use srt look for
  }

  get errors(): SchemaIssue[] {
    return this.issues;
  }
}

export type SafeParsed<T> = { success: true; data: T } | { success: false; error: SchemaError };

type Path = (string | number)[];
type Report = (path: Path, message: string, code?: string) => void;
type Check = (value: unknown, path: Path, report: Report) => unknown;

/** One schema. */
export class Schema<T> {
  constructor(private readonly check: Check) {}

  safeParse(value: unknown): SafeParsed<T> {
    const issues: SchemaIssue[] = [];
    const data = this.check(value, [], (path, message, code = 'invalid_type') => issues.push({ code, path, message }));
    return issues.length > 0 ? { success: false, error: new SchemaError(issues) } : { success: true, data: data as T };
  }

  parse(value: unknown): T {
    const parsed = this.safeParse(value);
    if (!parsed.success) throw parsed.error;
    return parsed.data;
  }
}

const kindOf = (value: unknown) => (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value);

const isType =
  (type: string, holds: (value: never) => string | undefined = () => undefined): Check =>
  (value, path, report) => {
    if (kindOf(value) !== type) report(path, value === undefined ? 'Required' : `Expected ${type}, received ${kindOf(value)}`);
    else {
      const problem = holds(value as never);
      if (problem !== undefined) report(path, problem, 'custom');
    }
    return value;
  };

const boolean = isType('boolean');
const anything: Check = (value) => value;
const text = isType('string');
const nonEmpty = isType('string', (value: string) => (value === '' ? 'String must contain at least 1 character(s)' : undefined));
const port = isType('number', (value: number) =>
  Number.isInteger(value) && value >= 1 && value <= 65535 ? undefined : 'Number must be a port, 1 to 65535',
);
const depth = isType('number', (value: number) =>
  Number.isInteger(value) && value >= 1 && value <= 10 ? undefined : 'Number must be a whole one, 1 to 10',
);
const program = isType('string', (value: string) => (isAbsolute(value) ? undefined : 'Binary path must be absolute'));
const variable = isType('string', (value: string) =>
  /^[A-Za-z_][A-Za-z0-9_]*$/.test(value) ? undefined : 'Environment variable names are letters, digits and underscores',
);
const machService = isType('string', (value: string) =>
  value.slice(0, -1).includes('*') ? 'Wildcards are only allowed as a single trailing "*"' : undefined,
);
const extraction = isType('string', (value: string) => {
  try {
    new RegExp(value);
  } catch (problem) {
    return `extract is not a valid regular expression: ${(problem as Error).message}`;
  }
  const groups = new RegExp(`${value}|`).exec('')!.length - 1; // what matches nothing still has a place for each
  return groups > 0 ? undefined : 'extract must contain at least one capturing group: the value to mask';
});
const oneOf = (...values: string[]): Check =>
  isType('string', (value: string) =>
    values.includes(value) ? undefined : `Invalid enum value. Expected ${values.map((one) => `'${one}'`).join(' | ')}, received '${value}'`,
  );

const listOf =
  (item: Check): Check =>
  (value, path, report) => {
    if (!Array.isArray(value)) return isType('array')(value, path, report);
    return value.map((one, at) => item(one, [...path, at], report));
  };

const recordOf =
  (item: Check): Check =>
  (value, path, report) => {
    if (kindOf(value) !== 'object') return isType('object')(value, path, report);
    return Object.fromEntries(Object.entries(value as object).map(([key, one]) => [key, item(one, [...path, key], report)]));
  };

/** Keys that end in `?` may be absent. Others than those named stay as they are: the sandbox itself says which it does not know. */
const objectOf = (shape: Record<string, Check>): Check => {
  const fields = Object.entries(shape).map(([key, check]) => ({ key: key.replace('?', ''), optional: key.endsWith('?'), check }));
  return (value, path, report) => {
    if (kindOf(value) !== 'object') return isType('object')(value, path, report);
    const found: Record<string, unknown> = { ...(value as object) };
    for (const { key, optional, check } of fields) {
      if (optional && found[key] === undefined) continue;
      found[key] = check(found[key], [...path, key], report);
    }
    return found;
  };
};

/** A host, `*.` and a domain of at least two parts, or an address; with a port if the entry is for that port only. */
function isHostEntry(entry: string, wildcard: boolean): boolean {
  const bracketed = /^\[([^\]]*)\](?::([1-9]\d{0,4}))?$/.exec(entry);
  if (bracketed) return isIP(bracketed[1]!.split('%')[0]!) === 6 && Number(bracketed[2] ?? 1) <= 65535;
  const [, host = '', number] = /^([^:]*)(?::([1-9]\d{0,4}))?$/.exec(entry) ?? [];
  if (host === '' || host.includes('/') || Number(number ?? 1) > 65535) return false;
  if (host === 'localhost' || (wildcard && host === '*')) return true;
  const parts = host.replace(/^\*\./, '').split('.');
  return parts.length >= 2 && parts.every((part) => part !== '' && !part.includes('*'));
}

const host = (wildcard: boolean): Check =>
  isType('string', (value: string) =>
    isHostEntry(value, wildcard)
      ? undefined
      : 'Invalid domain pattern: a domain ("example.com"), its subdomains ("*.example.com") or an address, with ":port" if need be',
  );

const path: Check = (value, at, report) => {
  const { literal, path: inner } = (value ?? {}) as { literal?: unknown; path?: unknown };
  if (typeof value === 'object' && literal === true) return void nonEmpty(inner, [...at, 'path'], report), value;
  return isType('string', (one: string) => (one === '' ? 'Path cannot be empty' : undefined))(value, at, report);
};

const credential = { mode: oneOf('deny', 'mask'), 'extract?': extraction, 'injectHosts?': listOf(host(false)) };
const credentialSources = objectOf({
  'files?': listOf(objectOf({ path: nonEmpty, ...credential })),
  'envVars?': listOf(objectOf({ name: variable, ...credential })),
  'allowPlaintextInject?': boolean,
});
const credentials: Check = (value, at, report) => {
  for (const key of Object.keys((value ?? {}) as object))
    if (!CREDENTIAL_KEYS.includes(key)) report(at, `Unrecognized key(s) in object: '${key}'`, 'unrecognized_keys');
  return credentialSources(value, at, report);
};

const tlsPaths = objectOf({ 'caCertPath?': nonEmpty, 'caKeyPath?': nonEmpty, 'excludeDomains?': listOf(host(false)) });
const tlsTerminate: Check = (value, at, report) => {
  const { caCertPath, caKeyPath } = (value ?? {}) as { caCertPath?: unknown; caKeyPath?: unknown };
  if ((caCertPath === undefined) !== (caKeyPath === undefined)) report(at, 'caCertPath and caKeyPath must be provided together', 'custom');
  return tlsPaths(value, at, report);
};

const network = objectOf({
  allowedDomains: listOf(host(false)),
  deniedDomains: listOf(host(true)),
  'deniedDomainReasons?': recordOf(nonEmpty),
  'strictAllowlist?': boolean,
  'deniedResolvedAddresses?': anything,
  'allowUnixSockets?': listOf(text),
  'allowAllUnixSockets?': boolean,
  'allowLocalBinding?': boolean,
  'allowMachLookup?': listOf(machService),
  'httpProxyPort?': port,
  'socksProxyPort?': port,
  'filterRequest?': isType('function'),
  'stripResponseHeaders?': listOf(nonEmpty),
  'tlsTerminate?': tlsTerminate,
});

const filesystem = objectOf({
  denyRead: listOf(path),
  'allowRead?': listOf(path),
  allowWrite: listOf(path),
  denyWrite: listOf(path),
  'disabled?': boolean,
  'allowGitConfig?': boolean,
});

const ignoreViolations = recordOf(listOf(text));
const ripgrep = objectOf({ command: text, 'args?': listOf(text) });
const git = objectOf({ 'safeDirectories?': listOf(text) });

export const NetworkConfigSchema = new Schema<NetworkConfig>(network);
export const FilesystemConfigSchema = new Schema<FilesystemConfig>(filesystem);
export const CredentialsConfigSchema = new Schema<CredentialsConfig>(credentials);
export const IgnoreViolationsConfigSchema = new Schema<IgnoreViolationsConfig>(ignoreViolations);
export const RipgrepConfigSchema = new Schema<{ command: string; args?: string[] }>(ripgrep);
export const GitConfigSchema = new Schema<{ safeDirectories?: string[] }>(git);
const settings = objectOf({
  network,
  filesystem,
  'credentials?': credentials,
  'ignoreViolations?': ignoreViolations,
  'enableWeakerNestedSandbox?': boolean,
  'allowNestedUserNamespaces?': boolean,
  'enableWeakerNetworkIsolation?': boolean,
  'ripgrep?': ripgrep,
  'git?': git,
  'mandatoryDenySearchDepth?': depth,
  'allowPty?': boolean,
  'bwrapPath?': program,
  'socatPath?': program,
});

export const SandboxRuntimeConfigSchema = new Schema<SandboxRuntimeConfig>((value, at, report) => {
  let sound = true;
  const data = settings(value, at, (...problem) => {
    sound = false;
    report(...problem);
  });
  if (sound) checkCredentials(data as SandboxRuntimeConfig, report);
  return data;
});

/** @internal Whether an entry may stand in a list of allowed hosts. */
export function isAllowedDomain(entry: unknown): boolean {
  return typeof entry === 'string' && isHostEntry(entry, false);
}
