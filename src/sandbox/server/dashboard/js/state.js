// What the page knows: the sandboxes, the questions that wait, the feed. Views listen for changes and draw them.

import { call, follow } from "./api.js";

const KEPT = 10000; // entries of the feed in memory
const LOOK = 2000; // milliseconds between looks at the list
const changes = new EventTarget();

export const state = {
  me: { name: "", scopes: [] },
  sandboxes: [],
  stats: new Map(), // id -> {memory_bytes, cpu_ms, …, cpu: share of one processor, commands: those that run}
  asks: new Map(),
  entries: [], // oldest first
  counts: new Map(), // id -> {allowed, blocked}
  verified: null,
  connection: "connecting",
};

export const may = (verb) => state.me.scopes.includes(verb);
export const on = (name, listener, signal) => changes.addEventListener(name, listener, { signal });
const changed = (name, detail) => changes.dispatchEvent(new CustomEvent(name, { detail }));

export async function start(signal) {
  state.me = await call("/v1/me");
  changed("me");
  if (may("audit")) {
    const { entries, last } = await call("/v1/audit?limit=1000");
    hear(entries);
    follow("/v1/audit/stream", { last: entries.at(-1)?.seq ?? last, signal, heard: (_, entry) => gather(entry), state: connected });
    verify();
  }
  const watch = may("answer") ? "?watch=true" : "";
  follow("/v1/events/stream" + watch, { signal, heard: happened, state: may("audit") ? undefined : connected });
  look(signal);
}

function connected(now) {
  if (state.connection === now) return;
  state.connection = now;
  changed("connection");
  if (now === "connected") refresh();
}

// -- the feed: what comes within a frame is drawn once

let gathered = [];
function gather(entry) {
  gathered.push(entry);
  if (gathered.length === 1) setTimeout(() => { const some = gathered; gathered = []; hear(some); }, 50);
}

function hear(entries) {
  if (!entries.length) return;
  for (const entry of entries) count(entry);
  state.entries.push(...entries);
  if (state.entries.length > KEPT) state.entries.splice(0, state.entries.length - KEPT);
  changed("entries", entries);
}

function count(entry) {
  if (entry.operation !== "network" || !entry.sandbox) return;
  const one = state.counts.get(entry.sandbox) ?? { allowed: 0, blocked: 0 };
  if (entry.result in one) one[entry.result] += 1;
  state.counts.set(entry.sandbox, one);
}

export async function verify() {
  try { state.verified = await call("/v1/audit/verify"); } catch { state.verified = null; }
  changed("verified");
}

// -- events: questions, and sandboxes that come and go

function happened(_, event) {
  if (event.type === "ask" && event.ask) {
    if (event.ask.state && event.ask.state !== "waiting") state.asks.delete(event.ask.id);
    else state.asks.set(event.ask.id, event.ask);
    changed("asks");
  }
  if (event.type === "seen" || event.type === "closed" || event.type === "lifecycle") refresh();
}

// -- the list, looked at again and again

let looking = false;
export async function refresh() {
  if (looking) return;
  looking = true;
  try {
    const [{ sandboxes }, { asks }] = await Promise.all([call("/v1/sandboxes"), call("/v1/asks")]);
    state.sandboxes = sandboxes;
    state.asks = new Map(asks.map((one) => [one.id, one]));
    changed("sandboxes");
    changed("asks");
    await Promise.all(sandboxes.filter((one) => one.status === "running").slice(0, 50).map(measure));
    changed("stats");
  } catch (problem) {
    if (problem.status === 401) connected("unauthorized");
  } finally {
    looking = false;
  }
}

async function measure({ id }) {
  try {
    const [used, { processes }] = await Promise.all([call(`/v1/sandboxes/${id}/stats`), call(`/v1/sandboxes/${id}/processes`)]);
    const now = { ...used, at: performance.now(), commands: processes.map((one) => one.command) };
    const before = state.stats.get(id);
    now.cpu = before && now.cpu_ms !== null ? Math.max(0, now.cpu_ms - before.cpu_ms) / (now.at - before.at) : null;
    state.stats.set(id, now);
  } catch { state.stats.delete(id); }
}

async function look(signal) {
  while (!signal.aborted && state.connection !== "unauthorized") {
    if (!document.hidden) await refresh();
    await new Promise((go) => setTimeout(go, LOOK));
  }
}

export function sandbox(id) { return state.sandboxes.find((one) => one.id === id); }
export function called(id) { return sandbox(id)?.name || id; }

/** What runs in a sandbox: the newest of its commands and how many there are besides, or what it was started for. */
export function doing(one) {
  const commands = state.stats.get(one.id)?.commands ?? [];
  const newest = (commands.at(-1) ?? one.command.join(" ")).replace(/^\/bin\/sh -c /, "");
  return commands.length > 1 ? `${newest} (+${commands.length - 1})` : newest;
}
