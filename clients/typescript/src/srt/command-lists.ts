import type { SandboxRuntimeConfig } from './config.js';
import { isAllowedDomain } from './schema.js';
import { encoded } from './violations.js';

const SHORTEST_ID = 22;
const NOWHERE = 'nowhere.invalid'; // no host can have this name

/** @internal The label of commands with such an id, if they can have a list of hosts of their own: unpaired surrogates do not count, and
 * nothing after the first hundred characters. */
export function listsLabel(commandId: unknown): string | undefined {
  if (typeof commandId !== 'string') return undefined;
  const label = encoded(commandId);
  return Buffer.from(label, 'base64').toString().replaceAll('\ufffd', '').length < SHORTEST_ID ? undefined : label;
}

/** @internal The hosts that single commands may reach besides, by label. */
export class CommandLists {
  private readonly lists = new Map<string, readonly string[]>();

  /** Returns the label. Throws what srt throws for an id or a list that makes no sense. The id is in no message: with it others
   * could have the list, too. */
  register(commandId: unknown, lists: { allowedDomains?: string[] } | undefined): string {
    const label = listsLabel(commandId);
    if (label === undefined) {
      throw new Error(
        `registerCommandNetworkLists: commandId must be a string of at least ${SHORTEST_ID} characters, unpaired surrogates not counted`,
      );
    }
    const { allowedDomains = [] } = lists ?? {};
    if (!Array.isArray(allowedDomains)) throw new Error('registerCommandNetworkLists: allowedDomains must be an array of strings.');
    const wrong = allowedDomains.find((entry) => !isAllowedDomain(entry));
    if (wrong !== undefined) {
      throw new Error(`registerCommandNetworkLists: invalid allowedDomains entry ${JSON.stringify(wrong)}`);
    }
    this.lists.set(label, [...allowedDomains]);
    return label;
  }

  /** Returns the label, if there was a list. */
  unregister(commandId: unknown): string | undefined {
    const label = typeof commandId === 'string' ? encoded(commandId) : '';
    return this.lists.delete(label) ? label : undefined;
  }

  of(label: string): readonly string[] | undefined {
    return this.lists.get(label);
  }

  has(label: string): boolean {
    return this.lists.has(label);
  }

  clear(): void {
    this.lists.clear();
  }

  /** The settings with the hosts that a command may reach besides. Masked secrets do not go to these, unless the settings say so. */
  added(settings: SandboxRuntimeConfig, label: string | undefined): SandboxRuntimeConfig {
    const more = label === undefined || settings.network?.strictAllowlist ? [] : (this.lists.get(label) ?? []);
    if (more.length === 0) return settings;
    const { allowedDomains } = settings.network;
    return { ...confined(settings), network: { ...settings.network, allowedDomains: [...allowedDomains, ...more] } };
  }
}

/** With the hosts said to which a masked secret goes by default: those that are allowed now. */
function confined(settings: SandboxRuntimeConfig): SandboxRuntimeConfig {
  const { credentials, network } = settings;
  if (!credentials) return settings;
  const named = network.allowedDomains.filter((host) => host !== '*');
  const hosts = named.length > 0 ? named : [NOWHERE];
  const said = <T extends { mode: string; injectHosts?: string[] }>(entries: T[] | undefined) =>
    entries?.map((entry) => (entry.mode === 'mask' && entry.injectHosts === undefined ? { ...entry, injectHosts: hosts } : entry));
  const { files, envVars } = credentials;
  return {
    ...settings,
    credentials: { ...credentials, ...(files ? { files: said(files)! } : {}), ...(envVars ? { envVars: said(envVars)! } : {}) },
  };
}
