// Building the page. Text from a sandbox reaches the page through `text nodes` alone, bounded and with what could mislead the
// eye (control characters, characters that turn the direction of writing) made visible. Nothing here parses HTML.

const MISLEADING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const LONGEST = 4000;

/** Text that shows what is in it: `\u202e` instead of turning the line around. */
export function visible(value, longest = LONGEST) {
  const text = String(value ?? "");
  const cut = text.length > longest ? text.slice(0, longest) + "…" : text;
  return cut.replace(MISLEADING, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** An element. `props`: attributes; `on…` are listeners; `class` is className. Children are nodes or text. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  node.listens = []; // the names of its listeners: who draws it again passes them on (redraw.js)
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) { node[name] = value; node.listens.push(name); }
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : visible(value));
  }
  node.append(...nodes(children));
  return node;
}

/** What is to be shown, as nodes: text is made safe, and what is not there is left out. */
export function nodes(children) {
  return children.flat().filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : document.createTextNode(visible(one))));
}

/** Replaces what `node` contains. What is drawn again and again uses `redraw` instead. */
export function fill(node, ...children) {
  node.replaceChildren(...nodes(children));
  return node;
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${count >= 100 || at === 0 ? Math.round(count) : count.toFixed(1)} ${units[at]}`;
}

export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([size]) => seconds >= size);
  if (at < 0) return "0 s";
  const [size, unit] = parts[at];
  const whole = Math.floor(seconds / size);
  const next = parts[at + 1];
  const rest = next && at < 3 ? Math.floor((seconds % size) / next[0]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

export function clock(iso) {
  const moment = new Date(iso);
  return Number.isNaN(moment.getTime()) ? visible(iso, 40) : moment.toLocaleTimeString(undefined, { hour12: false });
}

let hiding;
/** A short message at the bottom of the page, read out by screen readers. */
export function toast(message, problem = false) {
  const node = document.getElementById("toast");
  fill(node, message);
  node.className = problem ? "shown problem" : "shown";
  clearTimeout(hiding);
  hiding = setTimeout(() => { node.className = ""; }, problem ? 8000 : 3500);
}

/** A button that is off while its work is under way, and says what went wrong. Not `disabled`: that takes the focus away from it. */
export function button(label, work, props = {}) {
  return el("button", {
    type: "button", ...props,
    onclick: async (event) => {
      const node = event.currentTarget;
      if (node.ariaDisabled) return;
      node.ariaDisabled = "true";
      try { await work(); } catch (problem) { toast(problem.message, true); } finally { node.ariaDisabled = null; }
    },
  }, label);
}
