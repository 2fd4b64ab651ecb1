// Runs inside the sandbox: a Node.js that keeps its state, behind the same JSON lines as plain_python.py.
// Descriptor 3 leads to the host, 4 comes from it; 0, 1 and 2 are the code's own.
const fs = require("fs");
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
for (const name of ["stdout", "stderr"]) {
  process[name].write = (text, encoding, done) => {
    send({ stream: name, text: typeof text === "string" ? text : Buffer.from(text).toString() });
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
  const data = { "text/plain": util.inspect(value) };
  if (value !== null && typeof value === "object" && typeof value.toHTML === "function") data["text/html"] = String(value.toHTML());
  send({ data, result });
}

function failed(problem) {
  const error = problem instanceof Error || (problem && problem.stack) ? problem : new Error(util.inspect(problem));
  return { name: String(error.name || "Error"), value: String(error.message), traceback: String(error.stack) };
}

// Code that awaits something is no script. Names that it declares are its own: those of a script stay.
function compiled(code) {
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
const input = fs.createReadStream(null, { fd: 4 });
input.on("data", (data) => {
  rest = Buffer.concat([rest, data]);
  for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
    const asked = JSON.parse(rest.subarray(0, end).toString());
    rest = rest.subarray(end + 1);
    turn = turn.then(() => ((run = asked.run), answer(asked.code)));
  }
});
input.on("end", () => process.exit(0));
