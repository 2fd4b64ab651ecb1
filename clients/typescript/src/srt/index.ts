export type {
  CredentialEnvVarConfig,
  CredentialFileConfig,
  CredentialMode,
  CredentialsConfig,
  FilesystemConfig,
  FsReadRestrictionConfig,
  FsWriteRestrictionConfig,
  IgnoreViolationsConfig,
  NetworkConfig,
  NetworkHostPattern,
  NetworkRestrictionConfig,
  SandboxAskCallback,
  SandboxRuntimeConfig,
} from './config.js';
export { SandboxManager, type ISandboxManager, type SandboxDependencyCheck, type WrapWithSandboxOptions } from './manager.js';
export type { FilterRequestCallback, RequestDecision, RequestInfo } from './request-filter.js';
export {
  CredentialsConfigSchema,
  FilesystemConfigSchema,
  GitConfigSchema,
  IgnoreViolationsConfigSchema,
  NetworkConfigSchema,
  RipgrepConfigSchema,
  SandboxRuntimeConfigSchema,
} from './schema.js';
export { SandboxViolationStore, type SandboxViolationEvent } from './violations.js';
