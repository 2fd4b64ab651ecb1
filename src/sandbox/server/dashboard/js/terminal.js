// A terminal in the sandbox: bytes over a WebSocket to xterm.js, which draws them on a page of its own.

import { socket } from "./api.js";
import { fill } from "./dom.js";
import { load, t } from "./text.js";

const note = document.getElementById("note");
const id = location.hash.slice(1);

async function open() {
  await load();
  if (!/^[\w.-]{1,80}$/.test(id)) return;
  let xterm, fitting;
  try {
    xterm = await import("../vendor/xterm.mjs");
    fitting = await import("../vendor/addon-fit.mjs");
  } catch {
    fill(note, t("This build has no terminal: npm was not there when it was made. Use `sandbox exec` instead."));
    return;
  }
  const terminal = new xterm.Terminal({ cursorBlink: true, fontSize: 14, scrollback: 5000, screenReaderMode: false, theme: { background: "#101614" } });
  const fit = new fitting.FitAddon();
  terminal.loadAddon(fit);
  terminal.open(document.getElementById("terminal"));
  fit.fit();
  // What is typed before the line is open is sent when it is.
  let line = null;
  const early = [];
  const send = (data) => {
    if (line?.readyState === WebSocket.OPEN) line.send(data);
    else if (!line || line.readyState === WebSocket.CONNECTING) early.push(data);
  };
  const words = new TextEncoder();
  terminal.onData((text) => send(words.encode(text)));
  terminal.onBinary((text) => send(Uint8Array.from(text, (one) => one.charCodeAt(0))));
  terminal.focus();
  line = await socket(`/v1/sandboxes/${id}/terminal`);
  line.binaryType = "arraybuffer";
  line.onopen = () => [JSON.stringify({ rows: terminal.rows, cols: terminal.cols }), ...early].forEach((data) => line.send(data));
  line.onmessage = ({ data }) => (typeof data === "string" ? told(JSON.parse(data)) : terminal.write(new Uint8Array(data)));
  line.onclose = () => fill(note, note.textContent || t("The connection has ended."));
  terminal.onResize(({ rows, cols }) => { if (line.readyState === WebSocket.OPEN) line.send(JSON.stringify({ resize: { rows, cols } })); });
  new ResizeObserver(() => fit.fit()).observe(document.body);
}

function told(message) {
  if (message.exit) fill(note, t("It ended with status {code}.", { code: message.exit.exit_code }));
  if (message.error) fill(note, message.error.message);
}

open().catch((problem) => fill(note, problem.message));
