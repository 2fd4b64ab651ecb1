// The machines of a cluster, its teams, and who waits. Only a server with `--cluster` has this.

import { call } from "./api.js";
import { bytes, el, fill } from "./dom.js";
import { redraw } from "./redraw.js";
import { t } from "./text.js";

const LOOK = 3000; // milliseconds between looks

/** Whether the server shows a cluster. */
export async function hasNodes() {
  try { await call("/v1/nodes"); return true; } catch { return false; }
}

export function nodes(node, signal) {
  const said = el("p", { role: "status" });
  const machines = el("tbody");
  const teams = el("tbody");
  const shared = el("section", {}, el("h2", {}, t("Teams")), table(["Team", "Priority", "Sandboxes", "CPUs", "Memory", "Waiting"], teams));
  fill(node, el("h1", {}, t("Nodes")), said,
    table(["Node", "Address", "State", "CPUs", "Memory", "Sandboxes", "Ready"], machines), shared);
  shared.hidden = true;
  look(signal, (found) => {
    redraw(said, found.problem || t("{count} wait for room", { count: found.waiting }));
    said.className = found.problem ? "problem" : "";
    redraw(machines, found.nodes.map((one) => row(one.node, [
      one.node, one.address, state(one),
      one.cpus, bytes(one.memory), one.sandboxes, one.ready])));
    shared.hidden = !found.teams.length;
    redraw(teams, found.teams.map((one) => row(one.team, [
      one.team || "–", one.priority, share(one, "sandboxes", String), share(one, "cpus", String), share(one, "memory", bytes), one.waiting])));
  });
}

function state(one) {
  const told = el("span", { class: `state ${one.state === "up" ? "running" : "stopped"}` }, t(one.state));
  return one.record ? el("div", {}, told, el("p", { class: "problem" }, one.record)) : told; // its record: not sent, or changed
}

function share(one, what, shown) {
  const most = one.most[what];
  return most === null ? shown(one.used[what]) : `${shown(one.used[what])} / ${shown(most)}`;
}

function table(heads, body) {
  return el("div", { class: "wide" },
    el("table", {}, el("thead", {}, el("tr", {}, heads.map((one) => el("th", { scope: "col" }, t(one))))), body));
}

function row(key, cells) { return el("tr", { "data-key": key }, cells.map((one) => el("td", {}, one instanceof Node ? one : String(one)))); }

async function look(signal, draw) {
  while (!signal.aborted) {
    try { const found = await call("/v1/nodes"); if (!signal.aborted) draw(found); } catch { /* the header says that the connection is lost */ }
    await new Promise((go) => setTimeout(go, LOOK));
  }
}
