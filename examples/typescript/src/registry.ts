/** Which sandboxes there are; one of them used and ended: node dist/registry.js vm-a1b2c3d4 */
import { getSandbox, killSandbox, listSandboxes, prune, Sandbox } from 'agent-sandbox';

for (const entry of await listSandboxes({ status: 'running' })) console.log(`${entry.id}: ${entry.image} (PID ${entry.pid})`);

const id = process.argv[2];
if (id) {
  console.log((await getSandbox(id)).config);
  const sb = await Sandbox.attach(id);
  console.log((await sb.exec('echo hello')).stdout);
  await sb.close(); // leaves it
  await killSandbox(id);
}
console.log(`Pruned ${(await prune()).length} VMs`);
