// Drawing again. Elements that are still there are changed in place, so what a person has opened, focused, selected or is just
// clicking stays as it is.

import { nodes } from "./dom.js";

const THE_PERSONS = new Set(["open", "aria-disabled"]); // set by clicks, not by what is drawn

/**
 * Makes `node` contain `children`. Elements with `data-key` are found again by their key, others by their place; what an element with
 * `data-later` contains was filled in later, and is left alone. What is kept is the old element, never the one that is passed.
 */
export function redraw(node, ...children) {
  const focused = document.activeElement;
  renew(node, nodes(children));
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true }); // it was moved
  return node;
}

/** Whether somebody is reading or using this element: something in it is open, has the focus or is selected. */
export function inUse(node) {
  const selection = getSelection();
  return node.querySelector("details[open]") !== null || node.contains(document.activeElement)
    || (!selection.isCollapsed && selection.containsNode(node, true));
}

const key = (node) => node.dataset?.key;

function renew(parent, wanted) {
  const keys = new Set(wanted.map(key));
  for (const one of [...parent.children]) if (key(one) && !keys.has(key(one))) one.remove(); // first, so that what stays need not move
  const keyed = new Map([...parent.children].filter(key).map((one) => [key(one), one]));
  let at = parent.firstChild;
  for (const one of wanted) {
    const old = key(one) ? keyed.get(key(one)) : at;
    keyed.delete(key(one));
    if (!old || !alike(old, one)) {
      parent.insertBefore(one, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else parent.insertBefore(old, at);
    if (old !== one) change(old, one);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Whether `fresh` is what `old` was. A button never becomes another one under the pointer, unless both have one key. */
function alike(old, fresh) {
  if (old.nodeName !== fresh.nodeName || key(old) !== key(fresh)) return false;
  return fresh.nodeName !== "BUTTON" || Boolean(key(fresh)) || old.textContent === fresh.textContent;
}

function change(old, fresh) {
  if (fresh.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !THE_PERSONS.has(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !THE_PERSONS.has(name)) old.setAttribute(name, value);
  }
  for (const name of fresh.listens) old[name] = fresh[name];
  if (!fresh.hasAttribute("data-later")) renew(old, [...fresh.childNodes]);
}
