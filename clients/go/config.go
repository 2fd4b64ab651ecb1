package sandbox

import (
	"encoding/json"
	"time"
)

// Config is what a sandbox is asked to be. The zero value is the safe default: no host may be talked to.
type Config struct {
	Image         string
	Resources     Resources
	Network       NetworkConfig
	VFS           VFSConfig
	Env           map[string]string
	PolicyScript  string            // Starlark: on_request, on_response, is_host_allowed
	PolicySecrets map[string]string // what the script sees as `secrets`

	// Settings is anything else of docs/config.md, by section: {"filesystem": {"root": "/project"}}.
	Settings map[string]interface{}
}

// Resources is what the sandbox may use up; zero means no limit of one's own.
type Resources struct {
	CPUs     float64
	MemoryMB int
	Timeout  time.Duration // longest a command may run
}

// NetworkConfig says whom the sandbox may talk to.
type NetworkConfig struct {
	AllowedHosts    []string
	BlockPrivateIPs bool // the default anyway; AllowPrivateIPs is how to switch it off
	AllowPrivateIPs bool
	Secrets         map[string]Secret
	Hooks           HTTPHooks
}

// Secret is a credential that is put in outside the walls, and only towards its hosts.
type Secret struct {
	Value string   `json:"value"`
	Hosts []string `json:"hosts"`
}

// SecretPlaceholder is what Env says for "whatever stands in for the secret of that name".
func SecretPlaceholder(name string) string { return "${" + name + "}" }

// VFSConfig is the directories that are not simply the project.
type VFSConfig struct {
	DirectMounts map[string]DirectMount
	Mounts       map[string]Provider
	Hooks        VFSHooks
}

// DirectMount is a host directory as it is.
type DirectMount struct {
	HostPath string `json:"host_path"`
	Readonly bool   `json:"readonly,omitempty"`
}

// Provider is what is behind a mount. Those made by the New… functions live in the sandbox's own process.
type Provider interface{ Mount() Mount }

// Mount describes a provider as JSON-RPC spells it.
type Mount struct {
	Type     string `json:"type"`
	HostPath string `json:"host_path,omitempty"`
	Readonly bool   `json:"readonly,omitempty"`
	Upper    *Mount `json:"upper,omitempty"`
	Lower    *Mount `json:"lower,omitempty"`
}

// Mount makes a description a provider too.
func (m Mount) Mount() Mount { return m }

// NewMemoryProvider keeps files in memory, as long as the sandbox lives.
func NewMemoryProvider() Provider { return Mount{Type: "memory"} }

// NewRealFSProvider is a directory of the host.
func NewRealFSProvider(path string) Provider { return Mount{Type: "real_fs", HostPath: path} }

// NewReadonlyProvider is another provider that cannot be changed.
func NewReadonlyProvider(of Provider) Provider {
	mount := of.Mount()
	mount.Readonly = true
	return mount
}

// NewOverlayProvider keeps changes in upper and leaves lower as it is.
func NewOverlayProvider(upper, lower Provider) Provider {
	above, below := upper.Mount(), lower.Mount()
	return Mount{Type: "overlay", Upper: &above, Lower: &below}
}

// MarshalJSON spells it as the parameters of `create`.
func (c *Config) MarshalJSON() ([]byte, error) {
	params := map[string]interface{}{}
	for section, settings := range c.Settings {
		params[section] = settings
	}
	put(params, "image", c.Image, c.Image != "")
	put(params, "env", c.Env, c.Env != nil)
	resources := map[string]interface{}{}
	put(resources, "cpus", c.Resources.CPUs, c.Resources.CPUs != 0)
	put(resources, "memory_mb", c.Resources.MemoryMB, c.Resources.MemoryMB != 0)
	put(resources, "timeout_seconds", c.Resources.Timeout.Seconds(), c.Resources.Timeout != 0)
	put(params, "resources", resources, len(resources) > 0)
	merge(params, "network", c.network())
	merge(params, "vfs", c.vfs())
	hooks := c.hooks()
	put(params, "hooks", hooks, len(hooks) > 0)
	return json.Marshal(params)
}

func (c *Config) network() map[string]interface{} {
	n, section := c.Network, map[string]interface{}{}
	put(section, "allowed_hosts", n.AllowedHosts, n.AllowedHosts != nil)
	put(section, "block_private_ips", !n.AllowPrivateIPs, n.BlockPrivateIPs || n.AllowPrivateIPs)
	put(section, "secrets", n.Secrets, n.Secrets != nil)
	put(section, "policy_script", c.PolicyScript, c.PolicyScript != "")
	put(section, "policy_secrets", c.PolicySecrets, c.PolicySecrets != nil)
	return section
}

func (c *Config) vfs() map[string]interface{} {
	section, mounts := map[string]interface{}{}, map[string]Mount{}
	for path, provider := range c.VFS.Mounts {
		mounts[path] = provider.Mount()
	}
	put(section, "direct_mounts", c.VFS.DirectMounts, c.VFS.DirectMounts != nil)
	put(section, "mounts", mounts, len(mounts) > 0)
	return section
}

func put(into map[string]interface{}, key string, value interface{}, said bool) {
	if said {
		into[key] = value
	}
}

// merge lays our settings over those that Settings has for the same section.
func merge(params map[string]interface{}, name string, section map[string]interface{}) {
	if len(section) == 0 {
		return
	}
	if below, ok := params[name].(map[string]interface{}); ok {
		both := map[string]interface{}{}
		for key, value := range below {
			both[key] = value
		}
		for key, value := range section {
			both[key] = value
		}
		section = both
	}
	params[name] = section
}
