// The questions that wait, above everything else: what wants to go where, and the answers.

import { post } from "./api.js";
import { button, el } from "./dom.js";
import { redraw } from "./redraw.js";
import { called, may, on, refresh, state } from "./state.js";
import { t } from "./text.js";

const LABELS = { once: "Allow once", sandbox: "Allow for this sandbox", always: "Always allow", deny: "Deny" };

export function showAsks(node, signal) {
  const draw = () => {
    node.hidden = state.asks.size === 0;
    redraw(node, [...state.asks.values()].map(card));
  };
  on("asks", draw, signal);
  draw();
}

function card(ask) {
  const what = ask.kind === "host"
    ? [el("strong", {}, `${ask.host}:${ask.port}`), ask.method ? ` ${ask.method} ${ask.path}` : ""]
    : [el("strong", {}, ask.path), ` (${ask.operation ?? ""})`];
  const answers = ask.answers.filter((one) => may("answer") && (one !== "always" || may("host")));
  return el("article", { class: "ask", "data-key": ask.id },
    el("p", {}, el("span", { class: "program" }, ask.program || t("A program")), " ", t("in"), " ",
      el("a", { href: `#/s/${ask.sandbox}` }, called(ask.sandbox)), " ", t("wants to reach"), " ", what),
    el("p", { class: "answers" }, answers.map((one) => button(t(LABELS[one] ?? one), async () => {
      await post(`/v1/asks/${ask.id}`, { answer: one });
      await refresh();
    }, { class: one === "deny" ? "danger" : "" }))));
}
