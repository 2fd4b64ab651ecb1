// What a sandbox changed in an overlay: each file with its diff, to apply or to leave.

import { call, post } from "./api.js";
import { button, bytes, el, fill, toast } from "./dom.js";
import { redraw } from "./redraw.js";
import { may, on, sandbox } from "./state.js";
import { t } from "./text.js";

const SHOWN = 300;

export function changes(node, signal, id) {
  const list = el("div", { class: "changes" });
  const about = `/v1/sandboxes/${id}`;
  const refused = el("ul", { class: "refused-list" });

  async function draw() {
    const one = sandbox(id);
    if (one && !one.changes) return redraw(list, el("p", {}, t("This sandbox writes to the project itself: there is nothing to review. Use --overlay for that.")));
    const { changes: found } = await call(`${about}/changes`);
    const again = button(t("Look again"), draw, { class: "quiet" });
    if (!found.length) return redraw(list, el("p", { class: "answers" }, el("span", {}, t("No file differs.")), " ", again));
    redraw(list,
      el("p", { class: "answers" }, t("{count} changed", { count: found.length }), " ",
        may("apply") ? button(t("Apply all"), () => apply(null)) : null,
        may("apply") ? button(t("Discard all"), discard, { class: "danger" }) : null,
        again),
      found.slice(0, SHOWN).map(file),
      found.length > SHOWN ? el("p", {}, t("… and {count} more: sandbox diff {id}", { count: found.length - SHOWN, id })) : null);
    for (const one of list.querySelectorAll("details[open]")) one.ontoggle();
  }

  async function apply(paths) {
    const done = await post(`${about}/apply`, paths ? { paths } : {}).catch((problem) => {
      if (problem.code !== "not_applied") throw problem;
      return problem.data;
    });
    fill(refused, done.refused.map((one) => el("li", {}, el("code", {}, one.path), ": ", one.reason)));
    toast(t("{count} applied", { count: done.applied.length }), done.refused.length > 0);
    await draw();
  }

  async function discard() {
    if (!confirm(t("Throw all changes of this sandbox away?"))) return;
    await post(`${about}/discard`, {});
    toast(t("Discarded."));
    redraw(list, el("p", {}, t("No file differs.")));
  }

  async function drop(path) {
    await post(`${about}/discard`, { paths: [path] });
    await draw();
  }

  function file(change) {
    const size = change.after ? bytes(change.after.size) : "";
    return el("details", { class: `change ${change.kind}`, "data-key": change.path, ontoggle() {
      if (this.open) difference(change.path).then((diff) => redraw(this.querySelector("pre"), diff));
    } },
    el("summary", {}, el("span", { class: "kind" }, t(change.kind)), " ", el("code", {}, change.path), " ", el("span", { class: "hint" }, size)),
    may("apply") ? el("p", { class: "answers" }, button(t("Apply"), () => apply([change.path])), button(t("Discard"), () => drop(change.path), { class: "danger" })) : null,
    el("pre", { class: "diff", tabindex: "0", "data-later": true }));
  }

  async function difference(path) {
    try { return lines((await call(`${about}/diff?path=${encodeURIComponent(path)}`)).diff); } catch (problem) { return problem.message; }
  }

  fill(node, refused, list);
  const safely = () => draw().catch((problem) => redraw(list, el("p", { class: "hint" }, problem.message)));
  let before = sandbox(id)?.status;
  on("sandboxes", () => { const now = sandbox(id)?.status; if (before && now !== before) safely(); before = now; }, signal);
  safely();
}

function lines(diff) {
  if (!diff) return [t("Nothing that can be shown as text.")];
  return diff.split("\n").slice(0, 3000).map((line) => {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "place" : "";
    return el("span", { class: kind }, line, "\n");
  });
}
