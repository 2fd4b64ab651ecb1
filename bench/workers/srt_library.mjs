// `node srt_library.mjs LIBRARY [COMMAND]`: for each line on stdin, wraps and runs `true`, and prints how many milliseconds that took.
// Without a library, runs COMMAND plainly.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const library = process.argv[2];
const manager = library ? (await import(library)).SandboxManager : undefined;
await manager?.initialize({
  network: { allowedDomains: [], deniedDomains: [] },
  filesystem: { denyRead: [], allowWrite: ['.'], denyWrite: [] },
});

for await (const _ of createInterface({ input: process.stdin })) {
  const begun = performance.now();
  const command = manager ? await manager.wrapWithSandbox('true') : (process.argv[3] ?? 'true');
  const code = await new Promise((resolve) => spawn(command, { shell: true, stdio: 'ignore' }).on('close', resolve));
  console.log(code === 0 ? performance.now() - begun : `exit status ${code}`);
}
await manager?.reset();
process.exit(0);
