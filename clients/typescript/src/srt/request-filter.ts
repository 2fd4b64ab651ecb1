import type { Json } from '../connection.js';
import { bytes } from '../result.js';

/** What `network.filterRequest` answers, as in srt: a request that is allowed may be changed, one that is denied gets a status. */
export interface RequestDecision {
  action: 'allow' | 'deny';
  reason?: string;
  /** Of a refusal: 400 to 599, 403 by default. */
  status?: number;
  /** Of a refusal: unused here, as in srt without a `denyHeader`. */
  mark?: string;
  /** In any case, and with `-`, `_` and `.` for one another. */
  removeHeaders?: string[];
  setHeaders?: [string, string][];
  /** Sees the status and headers of the answer; what it throws is ignored. */
  onResponse?: (status: number, headers: Record<string, string | string[]>) => unknown;
}

/** What is known of a request beyond itself. */
export interface RequestInfo {
  scheme?: 'http' | 'https';
  sni?: string;
  target?: { host: string; port: number };
  requestTarget?: string;
  normalizedRequestTarget?: string;
  requestTargetIsAmbiguous?: boolean;
  rawHeaders?: string[];
  unshownBody?: () => Promise<boolean>;
}

export type FilterRequestCallback = (request: Request, info?: RequestInfo) => Promise<RequestDecision> | RequestDecision;

interface Shown {
  method: string;
  url: string;
  headers: [string, string][];
  body?: string;
}

const WITHOUT_BODY = new Set(['GET', 'HEAD', 'OPTIONS']);
const ECHOING = new Set(['TRACE', 'TRACK']); // the answer would show a header that the decision set
const FRAMING = new Set([
  'host', 'content-length', 'transfer-encoding', 'connection', 'upgrade', 'te', 'trailer', 'keep-alive', 'proxy-connection',
]);
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const MOST_OBSERVERS = 1000;

type Observer = NonNullable<RequestDecision['onResponse']>;
type Ambiguous = 'refuse' | 'asSpelled' | 'normalize';

/** @internal A program's own decision about every request, asked by the gate (docs/rpc.md, hooks). */
export class RequestFilter {
  readonly hooks = { on_request: { body: true }, on_response: {} };
  private readonly observers = new Map<string, Observer[]>();

  constructor(
    private readonly decide: FilterRequestCallback,
    private readonly plaintextSets: boolean,
    private readonly ambiguous: Ambiguous,
  ) {}

  /** The one that settings ask for, if they do. Throws TypeError for what is no function: it would filter nothing. */
  static of(network: Record<string, unknown> | undefined): RequestFilter | undefined {
    const { filterRequest, allowPlaintextHeaderSet, ambiguousRequestTarget = 'refuse' } = network ?? {};
    if (filterRequest === undefined) return undefined;
    if (typeof filterRequest !== 'function') throw new TypeError('network.filterRequest must be a function');
    return new RequestFilter(filterRequest as FilterRequestCallback, allowPlaintextHeaderSet === true, ambiguousRequestTarget as Ambiguous);
  }

  async answer(params: Json): Promise<Json> {
    const request = params['request'] as unknown as Shown;
    if (params['name'] === 'on_request') return this.judge(request);
    const { status, headers } = params['response'] as unknown as { status: number; headers: [string, string][] };
    this.observe(request, status, headers);
    return {};
  }

  private async judge(shown: Shown): Promise<Json> {
    if (ECHOING.has(shown.method.toUpperCase())) return refusal(`the ${shown.method} method is not forwarded`, 405);
    const info = about(shown);
    if (info.requestTargetIsAmbiguous && this.ambiguous === 'refuse') return refusal('the request target is ambiguous', 400);
    let decision: RequestDecision;
    try {
      decision = await this.decide(asRequest(shown), info);
    } catch (problem) {
      return refusal(`sandbox policy check failed: ${problem instanceof Error ? problem.message : String(problem)}`);
    }
    const wrong = malformed(decision);
    if (wrong !== undefined) return refusal(`sandbox policy check failed: malformed decision (${wrong})`);
    if (decision.action === 'deny') return refusal(decision.reason ?? 'denied by sandbox policy', decision.status);
    if (info.scheme === 'http' && !this.plaintextSets && decision.setHeaders?.length) {
      return refusal('the decision sets headers of a request that is not encrypted; allowPlaintextHeaderSet would let it');
    }
    if (decision.onResponse) this.expect(shown, decision.onResponse);
    return { request: this.changes(shown, decision, info) as unknown as Json };
  }

  private changes({ url, headers }: Shown, { removeHeaders = [], setHeaders = [] }: RequestDecision, info: RequestInfo): object {
    const sets = setHeaders.filter(([name]) => !FRAMING.has(name.toLowerCase()));
    const gone = new Set([...removeHeaders, ...sets.map(([name]) => name)].map(folded));
    const kept = headers.filter(([name]) => FRAMING.has(name.toLowerCase()) || !gone.has(folded(name)));
    const normalized = this.ambiguous === 'normalize' && info.requestTargetIsAmbiguous;
    return {
      ...(gone.size > 0 ? { headers: [...kept, ...sets] } : {}),
      ...(normalized ? { url: new URL(url).origin + info.normalizedRequestTarget } : {}),
    };
  }

  /** By method and address: what is asked for twice at a time may see each other's answer. */
  private expect({ method, url }: Shown, observer: Observer): void {
    if (this.observers.size >= MOST_OBSERVERS) return; // whose answers never came
    const key = `${method} ${url}`;
    const waiting = this.observers.get(key) ?? [];
    if (waiting.length < MOST_OBSERVERS) waiting.push(observer);
    this.observers.set(key, waiting);
  }

  private observe({ method, url }: Shown, status: number, headers: [string, string][]): void {
    const key = `${method} ${url}`;
    const waiting = this.observers.get(key);
    const observer = waiting?.shift();
    if (waiting?.length === 0) this.observers.delete(key);
    if (!observer) return;
    const named: Record<string, string | string[]> = {};
    for (const [name, value] of headers) {
      const lower = name.toLowerCase();
      if (lower === 'set-cookie') named[lower] = [...((named[lower] as string[] | undefined) ?? []), value];
      else named[lower] = named[lower] === undefined ? value : `${named[lower] as string}, ${value}`;
    }
    void (async () => observer(status, named))().catch(() => {});
  }
}

function refusal(reason: string, status = 403): Json {
  const known = Number.isInteger(status) && status >= 400 && status <= 599;
  return { blocked: reason, status: known ? status : 403 };
}

function folded(name: string): string {
  return name.toLowerCase().replace(/[_.]/g, '-');
}

/** As the callback sees it. */
function asRequest({ method, url, headers, body }: Shown): Request {
  const content = body && !WITHOUT_BODY.has(method) ? { body: bytes(body), duplex: 'half' } : {};
  return new Request(url, { method, headers, ...content } as RequestInit);
}

function about({ method, url, headers, body }: Shown): RequestInfo {
  const { protocol, hostname, port, pathname, search } = new URL(url);
  const scheme = protocol === 'https:' ? 'https' : 'http';
  const spelled = url.slice(url.indexOf('/', url.indexOf('://') + 3));
  const normalized = pathname.replace(/^\/{2,}/, '/') + search;
  const path = (target: string) => target.split('?')[0]!;
  return {
    scheme,
    ...(scheme === 'https' ? { sni: hostname } : {}),
    target: { host: hostname, port: Number(port) || (scheme === 'https' ? 443 : 80) },
    requestTarget: spelled,
    normalizedRequestTarget: normalized,
    requestTargetIsAmbiguous: ambiguous(path(spelled)),
    rawHeaders: headers.flat(),
    ...(WITHOUT_BODY.has(method) && body !== undefined ? { unshownBody: async () => body.length > 0 } : {}),
  };
}

/** Whether servers may read the path in different ways: a dot segment, a backslash, slashes at its beginning. */
function ambiguous(path: string): boolean {
  return path.startsWith('//') || path.includes('\\') || path.split('/').some((one) => /^(\.|%2e){1,2}$/i.test(one));
}

/** Why a decision cannot be applied; undefined when it can. */
function malformed(decision: unknown): string | undefined {
  if (typeof decision !== 'object' || decision === null) return 'not an object';
  const { action, reason, status, removeHeaders = [], setHeaders = [], onResponse } = decision as Record<string, unknown>;
  if (action !== 'allow' && action !== 'deny') return 'unknown action';
  if (reason !== undefined && typeof reason !== 'string') return 'reason is not a string';
  if (status !== undefined && typeof status !== 'number') return 'status is not a number';
  if (onResponse !== undefined && typeof onResponse !== 'function') return 'onResponse is not a function';
  const isName = (name: unknown) => typeof name === 'string' && TOKEN.test(name);
  const isSet = (pair: unknown) =>
    Array.isArray(pair) && pair.length === 2 && isName(pair[0]) && typeof pair[1] === 'string' && VALUE.test(pair[1]);
  if (!Array.isArray(removeHeaders) || !removeHeaders.every(isName)) return 'removeHeaders holds what is no name';
  if (!Array.isArray(setHeaders) || !setHeaders.every(isSet)) return 'setHeaders holds what is no name and value';
  return undefined;
}
