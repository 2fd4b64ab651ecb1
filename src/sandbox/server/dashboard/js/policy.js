// The policy in force: what the sandbox may see and reach, as its configuration says it.

import { call } from "./api.js";
import { el, fill } from "./dom.js";
import { t } from "./text.js";

export async function policy(node, signal, id) {
  const { config } = await call(`/v1/sandboxes/${id}`);
  let network = config.network;
  try { ({ network } = await call(`/v1/sandboxes/${id}/network`)); } catch { /* it has ended: what it started with */ }
  const sections = { ...config, network };
  fill(node, Object.entries(sections).filter(([, value]) => value !== null).map(([name, value]) => section(name, value)));
}

function section(name, value) {
  if (typeof value !== "object") return el("dl", { class: "policy" }, el("dt", {}, name), el("dd", {}, shown(value)));
  const rows = Array.isArray(value) ? [["", value]] : Object.entries(value);
  return el("details", { class: "policy", open: name === "network" || name === "filesystem" }, el("summary", {}, name),
    el("dl", {}, rows.flatMap(([key, one]) => [el("dt", {}, key), el("dd", {}, shown(one))])));
}

function shown(value) {
  if (Array.isArray(value)) return value.length ? el("ul", {}, value.map((one) => el("li", {}, el("code", {}, text(one))))) : el("span", { class: "hint" }, t("none"));
  if (value !== null && typeof value === "object" && !Object.keys(value).length) return el("span", { class: "hint" }, t("none"));
  return el("code", {}, text(value));
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
