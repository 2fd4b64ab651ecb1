// The sandbox's screen, drawn by noVNC: to look at, or with mouse and keyboard when somebody takes over.

import { socket } from "./api.js";
import { fill } from "./dom.js";
import { load, t } from "./text.js";

const note = document.getElementById("note");
const button = document.getElementById("control");
const id = location.hash.slice(1);
const MOST_PIXELS = 3840 * 2160; // as the server's: a display inside can say that it is any size, at any time
let shown = null;

function bounded(rfb) {
  const display = rfb._display; // noVNC has no other place for this; vendor/versions has the one version we use
  const resize = display.resize.bind(display);
  display.resize = (width, height) => {
    if (width * height <= MOST_PIXELS) resize(width, height);
    else rfb.disconnect();
  };
}

async function show(control) {
  let novnc;
  try {
    novnc = await import("../vendor/novnc/core/rfb.js");
  } catch {
    fill(note, t("This build has no viewer: npm was not there when it was made."));
    return;
  }
  if (shown) shown.disconnect();
  fill(note, t("Connecting …"));
  const line = await socket(`/v1/sandboxes/${id}/vnc?control=${control}`);
  const rfb = new novnc.default(document.getElementById("screen"), line, { shared: true });
  bounded(rfb);
  rfb.viewOnly = !control; // the server does not pass on what it does not allow, either
  rfb.scaleViewport = true;
  rfb.background = "#101614";
  rfb.addEventListener("connect", () => fill(note, control ? t("You have taken over.") : t("You are looking on.")));
  rfb.addEventListener("disconnect", () => { if (rfb === shown) fill(note, t("The connection has ended.")); });
  fill(button, control ? t("Give back") : t("Take over"));
  button.onclick = () => show(!control).catch(failed);
  button.hidden = false;
  shown = rfb;
}

function failed(problem) {
  fill(note, problem.message);
}

async function open() {
  await load();
  if (/^[\w.-]{1,80}$/.test(id)) await show(false);
}

open().catch(failed);
