// What lives: one row a sandbox, the running ones first.

import { call } from "./api.js";
import { button, bytes, el, fill, span } from "./dom.js";
import { redraw } from "./redraw.js";
import { doing, may, on, refresh, state } from "./state.js";
import { t } from "./text.js";

export function overview(node, signal) {
  const running = el("tbody");
  const ended = el("tbody");
  const none = el("div", { class: "empty" });
  const lively = el("div", { class: "wide" }, table(running));
  fill(node,
    el("h1", {}, t("Sandboxes")),
    none,
    lively,
    el("details", { class: "ended" }, el("summary", {}, t("Ended")), el("div", { class: "wide" }, table(ended))));
  const draw = () => {
    const lives = state.sandboxes.filter((one) => one.status === "running" || one.status === "paused");
    lively.hidden = !lives.length;
    keep(running, lives);
    keep(ended, state.sandboxes.filter((one) => !lives.includes(one)).slice(0, 100));
    redraw(none, lives.length ? null : el("p", {}, t("Nothing runs. Start something:"), " ", el("code", {}, "sandbox run -- …")));
  };
  on("sandboxes", draw, signal);
  on("stats", draw, signal);
  on("entries", draw, signal);
  draw();
}

function table(body) {
  const heads = ["Name", "State", "Engine", "Command", "Age", "CPU", "Memory", "Network", "Actions"];
  return el("table", {}, el("thead", {}, el("tr", {}, heads.map((one) => el("th", { scope: "col" }, t(one))))), body);
}

/** Most draws change few rows: one of which nothing is to be said anew is handed on as it is. */
function keep(body, sandboxes) {
  const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const said = (one) => JSON.stringify([one, state.stats.get(one.id), state.counts.get(one.id), Math.floor(Date.now() / 1000)]);
  redraw(body, sandboxes.map((one) => (old.get(one.id)?.said === said(one) ? old.get(one.id) : row(one))));
  for (const [at, one] of sandboxes.entries()) body.children[at].said = said(one);
}

function row(one) {
  const stats = state.stats.get(one.id);
  const net = state.counts.get(one.id) ?? { allowed: 0, blocked: 0 };
  const lives = one.status === "running" || one.status === "paused";
  const cells = [
    [t("Name"), el("a", { href: `#/s/${one.id}` }, one.name || one.id)],
    [t("State"), el("span", { class: `state ${one.status}` }, t(one.status))],
    [t("Engine"), `${one.engine}${one.mode ? ` · ${one.mode}` : ""}`],
    [t("Command"), el("code", { class: "command", title: doing(one).slice(0, 500) }, doing(one).slice(0, 200) || "–")],
    [t("Age"), span(Date.now() - new Date(one.created_at))],
    [t("CPU"), lives && stats?.cpu != null ? `${Math.round(stats.cpu * 100)} %` : "–"],
    [t("Memory"), lives ? bytes(stats?.memory_bytes) : "–"],
    [t("Network"), el("span", {}, t("{count} allowed", { count: net.allowed }), ", ", el("span", { class: net.blocked ? "blocked" : "" }, t("{count} refused", { count: net.blocked })))],
  ];
  const end = lives && may("kill") ? button(t("End"), async () => {
    await call(`/v1/sandboxes/${one.id}`, { method: "DELETE" });
    await refresh();
  }, { class: "danger end", "aria-label": `${t("End")} ${one.name || one.id}` }) : null;
  return el("tr", { "data-key": one.id }, cells.map(([label, content]) => el("td", { "data-label": label }, content)), el("td", {}, end));
}
