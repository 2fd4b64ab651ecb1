// The same package for `import`: one copy of everything, so that `instanceof` holds whichever way it was loaded.
export type * from './index.js';
export {
  CancelledError,
  ClosedError,
  CommandError,
  ConfigError,
  DeniedError,
  Desktop,
  FileError,
  getSandbox,
  getVm,
  killSandbox,
  killVm,
  listSandboxes,
  listVms,
  NotFoundError,
  NotStartedError,
  Process,
  prune,
  runWithConfig,
  Sandbox,
  SandboxError,
} from './index.js';
