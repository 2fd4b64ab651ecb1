// What lives: one row a sandbox, the running ones first.

import { call } from "./api.js";
import { button, bytes, el, fill, span } from "./dom.js";
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
    fill(none, lives.length ? null : el("p", {}, t("Nothing runs. Start something:"), " ", el("code", {}, "sandbox run -- …")));
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

/** Rows are kept while their sandbox is there, so that a button does not vanish under the pointer. */
function keep(body, sandboxes) {
  const old = new Map([...body.children].map((row) => [row.dataset.id, row]));
  body.replaceChildren(...sandboxes.map((one) => {
    const row = old.get(one.id) ?? el("tr", { "data-id": one.id });
    const said = JSON.stringify([one, state.stats.get(one.id), state.counts.get(one.id), Math.floor(Date.now() / 1000)]);
    if (row.said !== said) draw(row, one);
    row.said = said;
    return row;
  }));
}

function draw(row, one) {
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
  const old = row.querySelector("button.end");
  const end = lives && may("kill") ? old ?? button(t("End"), async () => {
    await call(`/v1/sandboxes/${one.id}`, { method: "DELETE" });
    await refresh();
  }, { class: "danger end", "aria-label": `${t("End")} ${one.name || one.id}` }) : null;
  fill(row, cells.map(([label, content]) => el("td", { "data-label": label }, content)), el("td", {}, end));
}
