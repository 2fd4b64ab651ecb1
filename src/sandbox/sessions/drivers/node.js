// Runs inside the sandbox: a Node.js that keeps its state, behind the same JSON lines as plain_python.py.
// Descriptor 3 leads to the host, 4 comes from it; 0, 1 and 2 are the code's own. With the word "typescript" after it, it
// takes TypeScript: types are removed by Node.js itself (22.13 and newer), or by the package `typescript`.
// All of it is in a function: its names are not to be in the way of the code's own.
(() => {
const fs = require("fs");
const net = require("net");
const { StringDecoder } = require("string_decoder");
const util = require("util");
const vm = require("vm");
const { createRequire } = require("module");

let run = null;
const send = (message) => {
  let data = Buffer.from(JSON.stringify({ ...message, run }) + "\n");
  while (data.length > 0) {
    try {
      data = data.subarray(fs.writeSync(3, data));
    } catch (problem) {
      if (problem.code !== "EAGAIN") throw problem;
    }
  }
};

// The host takes 8 MiB in one message.
const PIECE = 500000;
const MOST = 3500000;
const half = (text, at) => (text.charCodeAt(at - 1) & 0xfc00) === 0xd800; // whether that would divide a character
const cut = (text, most) => (text.length <= most ? text : text.slice(0, half(text, most) ? most - 1 : most));
for (const name of ["stdout", "stderr"]) {
  const decoder = new StringDecoder("utf8");
  process[name].write = (text, encoding, done) => {
    let left = typeof text === "string" ? text : decoder.write(Buffer.from(text));
    while (left.length > 0) {
      const piece = cut(left, PIECE);
      send({ stream: name, text: piece });
      left = left.slice(piece.length);
    }
    const called = typeof encoding === "function" ? encoding : done;
    if (called) called();
    return true;
  };
}

globalThis.require = createRequire(process.cwd() + "/cell");
globalThis.display = (...values) => values.forEach((value) => show(value, false));
process.on("SIGINT", () => interrupted());
let interrupted = () => {};

function show(value, result) {
  const plain = util.inspect(value);
  const data = { "text/plain": cut(plain, PIECE) };
  let truncated = data["text/plain"].length < plain.length;
  if (value !== null && typeof value === "object" && typeof value.toHTML === "function") {
    const html = String(value.toHTML());
    if (JSON.stringify(html).length <= MOST / 3) data["text/html"] = html;
    else truncated = true;
  }
  send({ data, result, truncated });
}

function failed(problem) {
  const error = problem instanceof Error || (problem && problem.stack) ? problem : new Error(util.inspect(problem));
  const name = cut(String(error.name || "Error"), 1000);
  return { name, value: cut(String(error.message), PIECE), traceback: cut(String(error.stack), PIECE) };
}

function removesTypes() {
  const own = require("module").stripTypeScriptTypes;
  if (own) {
    process.removeAllListeners("warning"); // that it is experimental
    return (code) => own(code, { mode: "transform" });
  }
  try {
    const typescript = globalThis.require("typescript");
    const options = { target: "es2022", module: "none" };
    return (code) => typescript.transpileModule(code, { compilerOptions: options }).outputText.replace(/^"use strict";\n/, "");
  } catch {
    throw new Error("TypeScript needs Node.js 22.13 or newer inside, or the package `typescript`");
  }
}
let plain = process.argv.includes("typescript") ? null : (code) => code;

// A script has no `import` statements: the same by `require`, so that the names stay for the code that follows.
const IMPORT = /^([ \t]*)import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s+|\{([^{}]*)\}\s*)?(?:from\s*)?(['"])([^'"\n]+)\5[ \t]*;?/gm;
const standard = (module) => (module && module.__esModule && "default" in module ? module.default : module);
function withoutImports(code) {
  globalThis[Symbol.for("sandbox.default")] = standard;
  return code.replace(IMPORT, (_, space, own, all, some, quote, name) => {
    const loaded = `require(${JSON.stringify(name)})`;
    const parts = [];
    if (own) parts.push(`var ${own} = globalThis[Symbol.for("sandbox.default")](${loaded});`);
    if (all) parts.push(`var ${all} = ${loaded};`);
    if (some) parts.push(`var { ${some.replace(/([\w$]+)\s+as\s+([\w$]+)/g, "$1: $2")} } = ${loaded};`);
    return space + (parts.join(" ") || `${loaded};`);
  });
}

// Code that awaits something is no script. Names that it declares are its own: those of a script stay.
function compiled(written) {
  let code = written;
  try {
    return new vm.Script(code, { filename: "cell" });
  } catch (problem) {
    if (/import statement/.test(problem.message)) code = withoutImports(code);
  }
  const forms = [code, `(async () => (${code}\n))()`, `(async () => {${code}\n})()`];
  let first = null;
  for (const form of code.includes("await") ? forms : [code]) {
    try {
      return new vm.Script(form, { filename: "cell" });
    } catch (problem) {
      first = first || problem;
    }
  }
  throw first;
}

async function answer(code) {
  try {
    code = (plain = plain || removesTypes())(code);
    const stopped = new Promise((_, reject) => (interrupted = () => reject(new Error("interrupted"))));
    const value = compiled(code).runInThisContext({ breakOnSigint: true });
    const shown = util.types.isPromise(value) && code.includes("await") ? await Promise.race([value, stopped]) : value;
    if (shown !== undefined) show(shown, true);
  } catch (problem) {
    send({ error: failed(problem) });
  }
  interrupted = () => {};
  send({ done: true });
  run = null;
}

process.on("uncaughtException", (problem) => send({ stream: "stderr", text: failed(problem).traceback + "\n" }));
process.on("unhandledRejection", (problem) => send({ stream: "stderr", text: failed(problem).traceback + "\n" }));
send({ ready: "node" });
let rest = Buffer.alloc(0);
let turn = Promise.resolve();
// Not a stream of a file: its pending read would keep `process.exit` waiting.
const input = new net.Socket({ fd: 4, readable: true, writable: false });
input.on("data", (data) => {
  rest = Buffer.concat([rest, data]);
  for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
    const asked = JSON.parse(rest.subarray(0, end).toString());
    rest = rest.subarray(end + 1);
    turn = turn.then(() => ((run = asked.run), answer(asked.code)));
  }
});
input.on("end", () => process.exit(0));
})();
