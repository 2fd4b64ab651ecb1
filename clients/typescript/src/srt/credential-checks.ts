/** Checks of masked secrets that look at more than one setting: whether a host that gets the value can be reached at all. */
import type { CredentialsConfig, SandboxRuntimeConfig } from './config.js';

type Report = (path: (string | number)[], message: string, code?: string) => void;

/** @internal Whether every host that `entry` stands for is one that some entry of `list` stands for. */
export function covers(list: string[], entry: string): boolean {
  const [name, port] = parts(entry);
  return list.some((one) => {
    const [pattern, itsPort] = parts(one);
    if (itsPort !== undefined && itsPort !== port) return false;
    if (pattern === name) return true;
    return pattern.startsWith('*.') && name.replace(/^\*\./, '.').endsWith(pattern.slice(1)) && name !== pattern.slice(2);
  });
}

function parts(entry: string): [string, string | undefined] {
  const [, name = entry, port] = /^(.*?)(?::(\d+))?$/.exec(entry.toLowerCase()) ?? [];
  return [name, port];
}

/** @internal Reports what makes no sense together. The settings have the right shape. */
export function checkCredentials({ network, credentials = {} }: SandboxRuntimeConfig, report: Report): void {
  const excluded = ((network['tlsTerminate'] as { excludeDomains?: string[] } | undefined)?.excludeDomains ?? []) as string[];
  for (const kind of ['envVars', 'files'] as const) {
    (credentials[kind] ?? []).forEach((entry, at) => {
      const path = ['credentials', kind, at];
      const { mode, injectHosts } = entry;
      (injectHosts ?? []).forEach((host, index) => {
        const problem = hostProblem(host, mode, network.allowedDomains, excluded);
        if (problem !== undefined) report([...path, 'injectHosts', index], problem, 'custom');
      });
      if (mode !== 'mask') return;
      if (injectHosts?.length === 0) report(path, 'injectHosts is explicitly empty: the value would be masked but never injected', 'custom');
      if (!injectHosts && excluded.length > 0 && network.allowedDomains.every((host) => covers(excluded, host)))
        report(path, 'network.tlsTerminate.excludeDomains names every allowed domain: the value can never be injected', 'custom');
      if (kind === 'files' && (entry as { path: string }).path.endsWith('/'))
        report([...path, 'path'], 'mode "mask" is for a single file; use "deny" for a directory', 'custom');
    });
  }
}

function hostProblem(host: string, mode: string, allowed: string[], excluded: string[]): string | undefined {
  if (!covers(allowed, host)) return `injectHosts entry "${host}" is not reachable via network.allowedDomains`;
  if (mode === 'mask' && covers(excluded, host)) return `injectHosts entry "${host}" is in network.tlsTerminate.excludeDomains, where nothing is put in`;
  return undefined;
}

/** @internal The keys of the section `credentials`. Another one, such as `injectHosts`, would silently do nothing. */
export const CREDENTIAL_KEYS: (keyof CredentialsConfig)[] = ['files', 'envVars', 'allowPlaintextInject', 'awsPairs', 'sigv4'];
