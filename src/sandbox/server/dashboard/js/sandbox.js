// One sandbox: what it is and uses, and its record, changes, policy and terminal.

import { call } from "./api.js";
import { changes } from "./changes.js";
import { button, bytes, el, fill, span } from "./dom.js";
import { feed } from "./feed.js";
import { policy } from "./policy.js";
import { redraw } from "./redraw.js";
import { doing, may, on, refresh, sandbox, state } from "./state.js";
import { t } from "./text.js";

const TABS = { activity: "Record", changes: "Changes", policy: "Policy", terminal: "Terminal", screen: "Screen" };

export function one(node, signal, id, asked) {
  const tab = Object.hasOwn(TABS, asked ?? "") ? asked : "activity"; // an address may name anything
  const head = el("div", { class: "head" });
  const body = el("div", { role: "tabpanel", id: "panel", "aria-labelledby": `tab-${tab}`, tabindex: "-1" });
  const draw = () => redraw(head, ...about(id));
  fill(node, head, tabs(id, tab), body);
  on("sandboxes", draw, signal);
  on("stats", draw, signal);
  draw();
  const failed = (problem) => fill(body, el("p", { class: "hint" }, problem.message));
  if (tab === "activity") feed(body, signal, id);
  if (tab === "changes") changes(body, signal, id);
  if (tab === "policy") policy(body, signal, id).catch(failed);
  if (tab === "terminal") framed(body, signal, id, "terminal.html", "Terminal", "A terminal needs a running sandbox.");
  if (tab === "screen") framed(body, signal, id, "screen.html", "Screen", "A screen needs a running sandbox.");
}

function about(id) {
  const known = sandbox(id);
  if (!known) return [el("h1", {}, id), el("p", { class: "hint" }, t("This sandbox is not known (any more)."))];
  const stats = state.stats.get(id);
  const facts = [
    ["Engine", known.engine], ["Mode", known.mode], ["Project", known.root],
    ["Command", doing(known) || "–"], ["Age", span(Date.now() - new Date(known.created_at))],
    ["Memory", bytes(stats?.memory_bytes)], ["CPU", stats?.cpu_ms != null ? span(stats.cpu_ms) : "–"], ["Processes", stats?.processes ?? "–"],
    ["Ports", known.ports.map((port) => `${port.host}:${port.port} → ${port.inside}`).join(", ") || "–"],
  ];
  const step = { running: ["pause", t("Pause sandbox")], paused: ["resume", t("Resume sandbox")] }[known.status];
  const end = step && may("kill") ? button(t("End"), async () => {
    await call(`/v1/sandboxes/${id}`, { method: "DELETE" });
    await refresh();
  }, { class: "danger", "data-key": "end" }) : null;
  const pause = step && may("kill") && known.owner === "server" && known.engine !== "none" ? button(step[1], async () => {
    await call(`/v1/sandboxes/${id}/${step[0]}`, { method: "POST" });
    await refresh();
  }, { "data-key": "step" }) : null;
  return [el("h1", {}, known.name || id, " ", el("span", { class: `state ${known.status}` }, t(known.status)), " ", pause, " ", end),
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, t(name)), el("dd", {}, String(value).slice(0, 500)))))];
}

function tabs(id, chosen) {
  const names = Object.keys(TABS).filter((name) => !["terminal", "screen"].includes(name) || may("exec"));
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(chosen) + step + names.length) % names.length];
    location.hash = `#/s/${id}/${next}`;
    requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus());
  };
  return el("div", { role: "tablist", class: "tabs", onkeydown: move }, names.map((name) => el("a", {
    role: "tab", id: `tab-${name}`, href: `#/s/${id}/${name}`, "aria-selected": String(name === chosen), "aria-controls": "panel",
    tabindex: name === chosen ? "0" : "-1",
  }, t(TABS[name]))));
}

/** A page of its own inside this one: what draws there may set styles, which this page's policy forbids. */
function framed(node, signal, id, page, title, hint) {
  let shown = false;
  const draw = () => {
    if (shown) return;
    shown = sandbox(id)?.status === "running";
    fill(node, shown ? el("iframe", { class: "terminal", src: `${page}#${id}`, title: t(title) }) : el("p", { class: "hint" }, t(hint)));
  };
  on("sandboxes", draw, signal);
  draw();
}
