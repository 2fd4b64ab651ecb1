import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Sandbox, SandboxError, type Config, type ExecResult } from '../src/index.mjs';
import { create } from './programs.mjs';

const VECTORS = fileURLToPath(new URL('../../../vectors/', import.meta.url));

interface Wanted {
  code: number;
  name?: string;
}

interface Step {
  call: string;
  args: Record<string, any>;
  input?: string[];
  signal?: number;
  result?: Record<string, any>;
  error?: Wanted;
}

interface Scenario {
  name: string;
  config?: Config;
  steps?: Step[];
  error?: Wanted;
}

for (const file of readdirSync(VECTORS).filter((name) => name.endsWith('.json'))) {
  describe(file, () => {
    for (const scenario of JSON.parse(readFileSync(join(VECTORS, file), 'utf8')) as Scenario[]) {
      it(scenario.name, () => play(scenario));
    }
  });
}

async function play(scenario: Scenario): Promise<void> {
  if (scenario.error) {
    await assert.rejects(create(scenario.config), (problem) => check(problem, scenario.error!));
    return;
  }
  const sandbox = await create(scenario.config);
  try {
    for (const step of scenario.steps!) {
      if (step.error) {
        await assert.rejects(call(sandbox, step), (problem) => check(problem, step.error!), JSON.stringify(step));
        continue;
      }
      const got = await call(sandbox, step);
      for (const [key, value] of Object.entries(step.result ?? {})) {
        if (key === 'stdout_has') assert.ok(got['stdout'].includes(value), JSON.stringify(step));
        else assert.deepEqual(got[key], value, JSON.stringify(step));
      }
    }
  } finally {
    await sandbox.close();
  }
}

function check(problem: unknown, wanted: Wanted): true {
  assert.ok(problem instanceof SandboxError);
  assert.equal(problem.rpcCode, wanted.code);
  if (wanted.name) assert.equal(problem.code, wanted.name);
  return true;
}

async function call(sandbox: Sandbox, step: Step): Promise<Record<string, any>> {
  const { command, path, text, base64, mode, ...args } = step.args;
  const options = {
    workingDir: args['working_dir'],
    env: args['env'],
    stdin: args['stdin'],
    timeout: args['timeout'] && args['timeout'] * 1000,
    maxOutput: args['max_output'],
  };
  switch (step.call) {
    case 'exec':
      return (await sandbox.exec(command, options)) as Record<string, any>;
    case 'exec_stream':
      return stream(sandbox, command);
    case 'spawn':
      return spawn(sandbox, step);
    case 'write_file':
      await sandbox.writeFile(path, text ?? Buffer.from(base64, 'base64'), mode);
      return {};
    case 'read_file': {
      const content = await sandbox.readFile(path);
      return { text: content.toString(), base64: content.toString('base64'), size: content.length };
    }
    case 'list_files':
      return { names: (await sandbox.listFiles(path)).map((entry) => entry.name).sort() };
    case 'stat':
      return (await sandbox.stat(path)) as Record<string, any>;
    case 'mkdir':
      await sandbox.mkdir(path);
      return {};
    case 'remove':
      await sandbox.remove(path, { recursive: args['recursive'] });
      return {};
    case 'rename':
      await sandbox.rename(args['old'], args['new']);
      return {};
  }
  throw new Error(`no such call: ${step.call}`);
}

async function stream(sandbox: Sandbox, command: string): Promise<Record<string, any>> {
  const output = { stdout: '', stderr: '' };
  const generator = sandbox.execStream(command);
  for (;;) {
    const next = await generator.next();
    if (next.done) return { ...next.value, ...output };
    output[next.value.stream] += next.value.data.toString();
  }
}

async function spawn(sandbox: Sandbox, step: Step): Promise<ExecResult & Record<string, any>> {
  const { command, tty } = step.args;
  const process = await sandbox.spawn(command, { tty });
  for (const piece of step.input ?? []) await process.write(piece);
  if (step.input && !tty) await process.closeStdin();
  let first = '';
  if (step.signal) {
    for await (const { data } of process) {
      first = data.toString();
      break;
    }
    await process.signal(step.signal);
  }
  const result = await process.wait();
  return { ...result, stdout: first + result.stdout };
}
