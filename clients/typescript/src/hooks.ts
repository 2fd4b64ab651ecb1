import type { Hooks, HttpRequest, HttpResponse } from './types.js';

type Json = Record<string, unknown>;

interface Shown {
  method?: string;
  url?: string;
  status?: number;
  headers: [string, string][];
  body?: string;
}

/** The hooks that this client has, as `create` wants them named. */
export function named(hooks: Hooks): Json {
  const body = { body: !hooks.withoutBodies };
  const all: [keyof Hooks, string, Json][] = [
    ['onRequest', 'on_request', body],
    ['onResponse', 'on_response', body],
    ['onTlsVerify', 'on_tls_verify', {}],
    ['beforeOpen', 'before_open', {}],
    ['afterWrite', 'after_write', {}],
  ];
  return Object.fromEntries(all.filter(([own]) => hooks[own]).map(([, name, options]) => [name, options]));
}

/** Answers one call of the sandbox's: the message, changed or not, or why it is refused. */
export async function answerHook(hooks: Hooks, params: Json): Promise<Json> {
  try {
    return await answer(hooks, params);
  } catch (problem) {
    return { blocked: problem instanceof Error ? problem.message : String(problem) };
  }
}

async function answer(hooks: Hooks, params: Json): Promise<Json> {
  const args = (params['args'] ?? []) as [string, number];
  switch (params['name']) {
    case 'on_request': {
      const changed = await hooks.onRequest!(request(params['request'] as Shown));
      return changed ? { request: shown(changed) } : { blocked: 'blocked by onRequest' };
    }
    case 'on_response': {
      const given = params['response'] as Shown;
      const response: HttpResponse = { status: given.status!, headers: given.headers, body: body(given) };
      const changed = await hooks.onResponse!(response, request(params['request'] as Shown));
      return changed ? { response: shown(changed) } : { blocked: 'blocked by onResponse' };
    }
    case 'on_tls_verify': {
      const chain = (params['certificates'] as string[]).map((one) => Buffer.from(one, 'base64'));
      await hooks.onTlsVerify!(String(params['host']), chain);
      return {};
    }
    case 'before_open':
      await hooks.beforeOpen!(...args);
      return {};
    case 'after_write':
      await hooks.afterWrite!(...args);
      return {};
  }
  throw new Error(`no hook ${String(params['name'])}`);
}

function request(given: Shown): HttpRequest {
  return { method: given.method!, url: given.url!, headers: given.headers, body: body(given) };
}

function body(given: Shown): Buffer {
  return Buffer.from(given.body ?? '', 'base64');
}

function shown(message: HttpRequest | HttpResponse): Json {
  const { body: content, ...rest } = message;
  return content.length > 0 ? { ...rest, body: content.toString('base64') } : rest;
}
