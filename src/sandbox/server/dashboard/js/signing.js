// Signatures that wait for a person: what would be signed, decoded, and by whom it was asked. Approving is asked twice.

import { call, post } from "./api.js";
import { button, el, span, toast } from "./dom.js";
import { redraw } from "./redraw.js";
import { called, may } from "./state.js";
import { t } from "./text.js";

const LOOK = 2000; // milliseconds between looks

export async function showSigning(node, signal) {
  if (!may("approve")) return;
  while (!signal.aborted) {
    if (!document.hidden) await draw(node);
    await new Promise((go) => setTimeout(go, LOOK));
  }
}

async function draw(node) {
  let pending = [];
  try { ({ pending } = await call("/api/sandbox/sign/pending")); } catch { /* no signer runs */ }
  node.hidden = pending.length === 0;
  redraw(node, pending.map((one) => card(one, node)));
}

function card(one, node) {
  const decide = (what) => post(`/api/sandbox/sign/${what}`, { requestId: one.requestId, hash: one.hash });
  return el("article", { class: "ask signature", "data-key": one.requestId },
    el("p", {}, el("strong", {}, headline(one.shown)), " — ", called(one.sandbox), " ",
      el("span", { "aria-live": "off" }, t("(ends in {time})", { time: span(one.expiresAt - Date.now()) }))),
    el("dl", {}, rows(one.shown).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, el("code", {}, value))])),
    el("p", { class: "hint" }, t("Hash:"), " ", el("code", {}, one.hash)),
    el("p", { class: "answers" },
      button(t("Approve"), async () => {
        if (!confirm(`${t("Sign this?")}\n\n${headline(one.shown)}\n${one.hash}`)) return;
        if (one.kind === "transaction" && !confirm(`${t("Really? It cannot be taken back.")}\n\n${headline(one.shown)}`)) return;
        await decide("approve");
        toast(t("Signed."));
        await draw(node);
      }, { class: "danger" }),
      button(t("Reject"), async () => { await decide("reject"); toast(t("Rejected.")); await draw(node); })));
}

function headline(shown) {
  if (shown.what === "transaction") return `${shown.ether} ETH → ${shown.to}`;
  if (shown.what === "typed data") return `${shown.type} → ${shown.domain.verifyingContract}`;
  return t("A message");
}

function rows(shown) {
  if (shown.what === "transaction") {
    const found = [[t("Chain"), shown.chainId], [t("At most, with fees"), `${shown.most} ETH`], ["nonce", shown.nonce]];
    if (shown.call?.function) {
      found.push([t("Calls"), shown.call.function]);
      for (const [name, value] of Object.entries(shown.call.arguments)) found.push([name, text(value)]);
    } else if (shown.call) found.push([t("Data"), shown.call.data]);
    return found;
  }
  if (shown.what === "typed data") return [[t("Domain"), text(shown.domain)], [t("Message"), text(shown.message)]];
  return [[t("Text"), shown.text ?? "–"], [t("Bytes"), shown.bytes]];
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
