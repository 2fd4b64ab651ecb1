/** What must not compile. Nothing here is run; a line that compiles after all is an error of the compiler. */
import { Sandbox, type Config, type Hooks } from '../src/index.mjs';

export async function mistakes(sandbox: Sandbox): Promise<void> {
  // @ts-expect-error a misspelt section
  await Sandbox.create({ netwrok: {} });
  // @ts-expect-error a misspelt key
  await Sandbox.create({ network: { allowed_host: ['example.com'] } });
  // @ts-expect-error a value that does not exist
  await Sandbox.create({ mode: 'maximum' });
  // @ts-expect-error a misspelt key of a secret
  await Sandbox.create({ network: { secrets: { KEY: { value: 'x', host: [] } } } });
  // @ts-expect-error a misspelt key of a mount
  await Sandbox.create({ vfs: { mounts: { '/x': { type: 'memory', sise: '1m' } } } });
  // @ts-expect-error hooks are given apart from the configuration
  await Sandbox.create({ hooks: {} });
  // @ts-expect-error a misspelt hook
  await Sandbox.create({}, { hooks: { beforeOpn() {} } });
  // @ts-expect-error a misspelt option
  await Sandbox.create({}, { hook: {} });
  // @ts-expect-error a hook on requests must say what becomes of the request
  await Sandbox.create({}, { hooks: { onRequest() {} } });
  // @ts-expect-error a misspelt option of a command
  await sandbox.exec('true', { timeuot: 1 });
  // @ts-expect-error a misspelt key of an update
  await sandbox.updateNetwork({ allowed_hots: [] });
  // @ts-expect-error nanoseconds do not fit a number
  const time: number = (await sandbox.stat('/')).mtime_ns;
  void time;
}

export const config: Config = { limits: { lifetime: '1h', idle_timeout: 60 }, network: { publish: ['0:80'] } };
export const hooks: Hooks = { beforeRename: (from, to) => console.log(from.length + to.length), afterWrite: (_, size) => console.log(size + 1) };
