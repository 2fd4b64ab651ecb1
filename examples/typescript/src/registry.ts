/** Which sandboxes there are; one of them used and ended: node dist/registry.js vm-a1b2c3d4 */
import { getVm, killVm, listVms, prune, Sandbox } from 'agent-sandbox';

for (const vm of await listVms({ status: 'running' })) console.log(`${vm.id}: ${vm.image} (PID ${vm.pid})`);

const id = process.argv[2];
if (id) {
  console.log((await getVm(id)).config);
  const sb = await Sandbox.attach(id);
  console.log((await sb.exec('echo hello')).stdout);
  await sb.close(); // leaves it
  await killVm(id);
}
console.log(`Pruned ${(await prune()).length} VMs`);
