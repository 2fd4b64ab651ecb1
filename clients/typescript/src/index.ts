export * from './errors.js';
export { Process } from './process.js';
export { Sandbox } from './sandbox.js';
export type * from './types.js';
export { getVm, killVm, listVms, prune, runWithConfig, type Vm } from './vms.js';
