// The page: signing in, the header, and which view the address names.

import { forgetToken, post, setToken, takeToken, token } from "./api.js";
import { showAsks } from "./asks.js";
import { button, el, fill, toast } from "./dom.js";
import { feed } from "./feed.js";
import { overview } from "./overview.js";
import { hasNodes, nodes } from "./nodes.js";
import { one } from "./sandbox.js";
import { showSigning } from "./signing.js";
import { may, on, start, state, verify } from "./state.js";
import { choose, language, LANGUAGES, load, t } from "./text.js";

const main = document.getElementById("main");
let view = new AbortController();
let life = new AbortController();
let clustered = false; // whether this server shows the nodes of a cluster
let started = false; // until then the address is looked at once, when everything is there

function route() {
  view.abort();
  view = new AbortController();
  const [, name, id, tab] = location.hash.split("/");
  if (name === "s" && /^[\w.-]{1,80}$/.test(id ?? "")) one(main, view.signal, id, tab);
  else if (name === "record") feed(main, view.signal);
  else if (name === "nodes") nodes(main, view.signal);
  else overview(main, view.signal);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === (location.hash || "#/")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function header() {
  fill(document.getElementById("nav"), el("a", { href: "#/" }, t("Sandboxes")), el("a", { href: "#/record" }, t("Record")),
    clustered ? el("a", { href: "#/nodes" }, t("Nodes")) : null);
  fill(document.getElementById("sign-out"), button(t("Sign out"), () => { forgetToken(); location.reload(); }, { class: "quiet" }));
  labels();
  const panic = document.getElementById("panic");
  panic.hidden = !may("panic");
  fill(panic, t("Stop everything"));
  panic.onclick = stopEverything;
}

/** What index.html leaves empty, also before anybody has signed in. */
function labels() {
  const languages = document.getElementById("language");
  fill(languages, Object.entries(LANGUAGES).map(([code, name]) => el("option", { value: code, selected: code === language }, name)));
  languages.onchange = async () => {
    await choose(languages.value);
    if (started) { words(); route(); } else { labels(); begin(); }
  };
  for (const node of document.querySelectorAll("[data-text]")) fill(node, t(node.dataset.text));
  for (const node of document.querySelectorAll("[data-label]")) if (node.id) node.setAttribute("aria-label", t(node.dataset.label));
}

async function stopEverything() {
  if (!confirm(t("End every sandbox now, revoke their secrets and refuse new ones until you release the switch?"))) return;
  try { await post("/api/sandbox/kill", {}); toast(t("Everything was stopped.")); } catch (problem) { toast(problem.message, true); }
}

function words() {
  header();
  connection();
  verified();
}

function connection() {
  const said = { connecting: "Connecting…", connected: "Live", waiting: "Connection lost; trying again…", unauthorized: "The token is no longer valid." };
  const node = document.getElementById("connection");
  node.className = state.connection;
  fill(node, t(said[state.connection]));
  if (state.connection === "unauthorized") { life.abort(); forgetToken(); signIn(t("The token is no longer valid.")); }
}

function verified() {
  const node = document.getElementById("verified");
  const found = state.verified;
  node.hidden = !may("audit") || found === null;
  if (node.hidden) return;
  node.className = found.intact ? "quiet good" : "danger";
  fill(node, found.intact ? t("Record verified: {count} entries", { count: found.count }) : t("RECORD ALTERED: {problem}", { problem: found.problem }));
  node.onclick = verify;
}

function signIn(problem = "") {
  const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  fill(main, el("form", { class: "sign-in", onsubmit: (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    begin();
  } }, el("h1", {}, "sandbox"), problem ? el("p", { role: "alert", class: "problem" }, problem) : null,
  el("label", { for: "token" }, t("Token")), field, el("button", { type: "submit" }, t("Sign in")),
  el("p", { class: "hint" }, t("Make one with"), " ", el("code", { class: "line" }, "sandbox serve token new --scope '*'"))));
  field.focus();
}

async function begin() {
  life.abort();
  life = new AbortController();
  started = false;
  if (!token()) return signIn();
  try {
    await start(life.signal);
  } catch (problem) {
    if (problem.status === 401 || problem.status === 403) { forgetToken(); return signIn(problem.message); }
    fill(main, el("p", { class: "problem" }, t("The server cannot be reached.")));
    setTimeout(begin, 2000);
    return;
  }
  started = true;
  clustered = await hasNodes();
  words();
  on("connection", connection, life.signal);
  on("verified", verified, life.signal);
  showAsks(document.getElementById("asks"), life.signal);
  showSigning(document.getElementById("signing"), life.signal);
  route();
}

await load();
labels();
takeToken();
addEventListener("hashchange", () => { if (location.hash.startsWith("#token=")) { takeToken(); begin(); } else if (started) { route(); main.focus({ preventScroll: true }); scrollTo(0, 0); } });
begin();
