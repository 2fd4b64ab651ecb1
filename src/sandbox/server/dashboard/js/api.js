// The server's API: requests with the token, streams that come back after an interruption, WebSockets by ticket.
// The token stays in this tab (sessionStorage); it reaches the page in the address's fragment, which no server sees.

const KEY = "sandbox.token";

export function takeToken() {
  const given = /^#token=([\w.~-]+)$/.exec(location.hash);
  if (given) {
    sessionStorage.setItem(KEY, given[1]);
    history.replaceState(null, "", location.pathname + "#/");
  }
  return sessionStorage.getItem(KEY);
}

export const token = () => sessionStorage.getItem(KEY);
export const setToken = (text) => sessionStorage.setItem(KEY, text);
export const forgetToken = () => sessionStorage.removeItem(KEY);

export class Refused extends Error {
  constructor(status, code, message, data = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.data = data;
  }
}

async function refusal(response) {
  try {
    const { error } = await response.json();
    return new Refused(response.status, error.code, error.message, error.data);
  } catch {
    return new Refused(response.status, "", `${response.status} ${response.statusText}`);
  }
}

/** One request; returns the answer's JSON. Raises Refused, or TypeError when the server cannot be reached. */
export async function call(path, { method = "GET", body, signal } = {}) {
  const headers = { Authorization: `Bearer ${token()}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export const post = (path, body) => call(path, { method: "POST", body });

/** Server-sent events by fetch, because EventSource cannot send a token. Yields {event, data, id}. */
async function* events(path, last, signal) {
  const headers = { Authorization: `Bearer ${token()}`, Accept: "text/event-stream" };
  if (last !== "") headers["Last-Event-ID"] = String(last);
  const response = await fetch(path, { headers, signal });
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const one = { event: "message", data: "", id: "" };
      for (const line of part.split("\n")) {
        const colon = line.indexOf(":");
        if (colon > 0) one[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
      }
      if (one.data) yield one;
    }
  }
}

/** Follows a stream until `signal` ends it, and begins again after every interruption, where it left off. */
export async function follow(path, { last = "", heard, state = () => {}, signal }) {
  let pause = 500;
  while (!signal.aborted) {
    try {
      state("connecting");
      const stream = events(path, last, signal);
      const opened = setTimeout(() => state("connected"), 100);
      try {
        for await (const one of stream) {
          pause = 500;
          state("connected");
          if (one.id) last = one.id;
          heard(one.event, JSON.parse(one.data));
        }
      } finally {
        clearTimeout(opened);
      }
    } catch (problem) {
      if (signal.aborted) return;
      if (problem.status === 401) { state("unauthorized"); return; }
    }
    state("waiting");
    await new Promise((go) => { setTimeout(go, pause); signal.addEventListener("abort", go, { once: true }); });
    pause = Math.min(pause * 2, 8000);
  }
}

/** A WebSocket. A page can set no header on one, so it shows a ticket that is good for one connection. */
export async function socket(path) {
  const { protocol } = await post("/v1/tickets", {});
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return new WebSocket(url, [protocol]);
}
