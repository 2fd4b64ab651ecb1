// The same for `import`: one manager for the whole program, whichever way it was loaded.
export type * from './index.js';
export {
  CredentialsConfigSchema,
  FilesystemConfigSchema,
  GitConfigSchema,
  IgnoreViolationsConfigSchema,
  NetworkConfigSchema,
  RipgrepConfigSchema,
  SandboxManager,
  SandboxRuntimeConfigSchema,
  SandboxViolationStore,
} from './index.js';
