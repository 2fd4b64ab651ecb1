// The record as it is written, with filters; and for each refusal why it was refused and what allows it.

import { call, post } from "./api.js";
import { button, clock, el, fill, toast, visible } from "./dom.js";
import { inUse, redraw } from "./redraw.js";
import { called, may, on, sandbox, state } from "./state.js";
import { t } from "./text.js";

const SHOWN = 200; // rows drawn at a time: a page of ten thousand rows would be slow, and nobody reads them
const SEVERITIES = ["info", "warn", "error", "critical"];

export function feed(node, signal, only = null) {
  const list = el("ol", { class: "feed", "aria-label": t("Record") });
  const more = button(t("Show older"), () => { shown += SHOWN; draw(); }, { class: "quiet" });
  const held = el("p", { class: "held", role: "status" });
  const chosen = filters(draw, signal, only);
  let shown = SHOWN;
  let paused = false;
  const pause = el("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    fill(pause, paused ? t("Resume") : t("Pause"));
    draw();
  } }, t("Pause"));
  const fits = (entry) => (!only || entry.sandbox === only) && chosen.fits(entry);

  function draw() {
    const found = [];
    for (let at = state.entries.length - 1; at >= 0 && found.length <= shown; at -= 1) {
      if (fits(state.entries[at])) found.push(state.entries[at]);
    }
    more.hidden = found.length <= shown;
    redraw(list, found.slice(0, shown).map(row));
    redraw(held, found.length ? "" : t("Nothing here yet."));
  }

  on("entries", (event) => {
    if (paused) return;
    const fresh = event.detail.filter(fits).slice(-SHOWN).reverse();
    if (!fresh.length) return;
    redraw(held);
    still(list, () => list.prepend(...fresh.map(row)));
    for (const one of [...list.children].slice(shown)) if (!inUse(one)) { one.remove(); more.hidden = false; }
  }, signal);
  // What a row offers depends on whether its sandbox runs, which may become known or change after it was drawn.
  let before = "";
  on("sandboxes", () => {
    const now = JSON.stringify(state.sandboxes.map((one) => [one.id, one.name, one.status]));
    if (now !== before) redraw(list, [...list.children].map((one) => row(one.entry)));
    before = now;
  }, signal);
  fill(node, only ? null : el("h1", {}, t("Record")), el("div", { class: "filters" }, chosen.node, pause), held, list, more);
  draw();
}

/** Adds rows at the top. One that somebody is reading stays where it is on the screen. */
function still(list, add) {
  const read = [...list.children].find(inUse);
  list.classList.toggle("read", Boolean(read)); // heights as they are, and the browser does not scroll, too
  const before = read?.getBoundingClientRect().top;
  add();
  if (read) scrollBy(0, read.getBoundingClientRect().top - before);
}

function filters(changed, signal, only) {
  const text = el("input", { type: "search", placeholder: t("Text"), "aria-label": t("Text"), oninput: changed });
  const severity = el("select", { "aria-label": t("Severity"), onchange: changed },
    SEVERITIES.map((one) => el("option", { value: one }, one === "info" ? t("Any severity") : t("{severity} and above", { severity: one }))));
  const type = el("select", { "aria-label": t("Type"), onchange: changed });
  const whose = only ? null : el("select", { "aria-label": t("Sandbox"), onchange: changed });
  // What can be chosen grows while the page is open.
  const seen = new Set();
  const types = (entries) => {
    for (const one of entries) seen.add(one.type);
    if (seen.size >= type.length) options(type, t("Any type"), [...seen].sort().map((one) => [one, one]));
  };
  const sandboxes = () => whose && options(whose, t("Any sandbox"), state.sandboxes.slice(0, 200).map((one) => [one.id, one.name || one.id]));
  on("entries", (event) => types(event.detail), signal);
  on("sandboxes", sandboxes, signal);
  types(state.entries);
  sandboxes();
  const blocked = el("input", { type: "checkbox", id: "blocked", onchange: changed });
  return {
    node: [text, severity, type, whose, el("label", { for: "blocked" }, blocked, " ", t("Refused only"))],
    fits: (entry) => (!blocked.checked || entry.result === "blocked")
      && SEVERITIES.indexOf(entry.severity) >= SEVERITIES.indexOf(severity.value)
      && (!type.value || entry.type === type.value)
      && (!whose?.value || entry.sandbox === whose.value)
      && (!text.value || JSON.stringify(entry).toLowerCase().includes(text.value.toLowerCase())),
  };
}

function options(select, any, choices) {
  if (select.value && !choices.some(([value]) => value === select.value)) choices.push([select.value, select.selectedOptions[0].text]);
  redraw(select, [["", any], ...choices].map(([value, name]) => el("option", { value, "data-key": `=${value}` }, name)));
}

function row(entry) {
  const refused = entry.result === "blocked";
  const drawn = el("li", { class: `entry ${entry.severity} ${refused ? "refused" : ""}`, "data-key": entry.seq },
    el("time", { datetime: entry.timestamp, title: entry.timestamp }, clock(entry.timestamp)),
    el("span", { class: "severity" }, entry.severity),
    entry.sandbox ? el("a", { href: `#/s/${encodeURIComponent(entry.sandbox)}` }, called(entry.sandbox)) : el("span"),
    el("span", { class: "summary" }, visible(entry.summary, 600)),
    refused ? why(entry) : null);
  drawn.entry = entry;
  return drawn;
}

function why(entry) {
  const allow = allowing(entry);
  return el("details", { class: "why" }, el("summary", {}, t("Why?")),
    el("p", {}, visible(entry.reason || t("No reason was recorded."), 1000)),
    entry.policy ? el("p", {}, t("Rule:"), " ", el("code", {}, entry.policy)) : null,
    allow);
}

/** Buttons for a refused host. What has happened cannot be allowed any more: "once" is about the next attempt. */
function allowing(entry) {
  const { host, port } = entry.metadata ?? {};
  const about = `/v1/sandboxes/${entry.sandbox}`;
  if (entry.operation !== "network" || !host || !may("host")) return null;
  const running = sandbox(entry.sandbox)?.status === "running";
  const named = `${String(host).includes(":") ? `[${host}]` : host}:${port}`;
  const allow = async (answer) => {
    await post(`${about}/allow`, { host: named, answer });
    toast(answer === "always" ? t("{host} is allowed from now on, in every sandbox.", { host: named }) : t("{host} is allowed for this sandbox.", { host: named }));
  };
  const once = async () => {
    await call(`${about}/network`, { method: "PATCH", body: { ask: true } });
    toast(t("The next attempt waits for your answer."));
  };
  if (!running) return el("p", { class: "hint" }, t("This sandbox has ended. To allow it next time:"), " ", el("code", {}, `--allow-host ${host}`));
  return el("p", { class: "answers" },
    button(t("Ask me next time"), once, { title: t("Allow once: the next attempt waits for your answer.") }),
    button(t("Allow for this sandbox"), () => allow("sandbox")), button(t("Always allow"), () => allow("always")));
}
