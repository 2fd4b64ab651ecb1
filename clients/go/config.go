package sandbox

import (
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"
)

// Config describes a sandbox. The zero value is the safe default, in which no host can be reached.
type Config struct {
	Image         string
	Resources     Resources
	Filesystem    FilesystemConfig
	Network       NetworkConfig
	VFS           VFSConfig
	Env           map[string]string
	PolicyScript  string            // Starlark: on_request, on_response, is_host_allowed
	PolicySecrets map[string]string // what the script sees as `secrets`

	// Settings is any other setting of docs/config.md, by section: {"filesystem": {"deny_read": […]}}. The fields of
	// Config take precedence.
	Settings map[string]interface{}

	// Stderr receives the messages of the `sandbox` process and of hooks that panic. The default is os.Stderr.
	Stderr io.Writer
}

func (c *Config) log() io.Writer {
	switch w := c.Stderr.(type) {
	case nil:
		return os.Stderr
	case *os.File:
		return w
	}
	return &oneAtATime{w: c.Stderr}
}

// oneAtATime is a writer that the process and the hooks can share.
type oneAtATime struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneAtATime) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(data)
}

// Resources is what a sandbox may use. Zero means that there is no limit.
type Resources struct {
	CPUs        float64
	MemoryMB    int
	Timeout     time.Duration // longest a command may run
	Lifetime    time.Duration // longest the sandbox may live; see VM.Extend
	IdleTimeout time.Duration // longest the sandbox may live without a command that runs; see VM.Extend
}

// FilesystemConfig says which project directory the sandbox has.
type FilesystemConfig struct {
	Root    string // the project; the current directory when empty
	Overlay bool   // keep changes to the project apart, for VM.Changes and VM.Apply
}

// NetworkConfig says which hosts the sandbox may connect to, and who may connect to it.
type NetworkConfig struct {
	AllowedHosts    []string
	BlockPrivateIPs bool // the default; AllowPrivateIPs switches it off
	AllowPrivateIPs bool
	Secrets         map[string]Secret
	Publish         []string // ports inside that the host can reach: "8080:80", "127.0.0.1:8080:80", "0:80" for any free port
	Hooks           HTTPHooks
}

// Secret is a credential that commands never see: the gate puts it into requests to Hosts.
type Secret struct {
	Value string   `json:"value"`
	Hosts []string `json:"hosts"`
}

// SecretPlaceholder returns what to write in Config.Env for the placeholder of a secret.
func SecretPlaceholder(name string) string { return "${" + name + "}" }

// VFSConfig lists directories beside the project, by their path inside.
type VFSConfig struct {
	DirectMounts map[string]DirectMount
	Mounts       map[string]Provider
	Hooks        VFSHooks
}

// DirectMount is a directory of the host.
type DirectMount struct {
	HostPath string `json:"host_path"`
	Readonly bool   `json:"readonly,omitempty"`
}

// Provider is what a mount holds. The New… functions return providers; they run in the `sandbox` process, so a provider
// cannot be written in Go.
type Provider interface{ Mount() Mount }

// Mount describes a provider as JSON-RPC does.
type Mount struct {
	Type     string `json:"type"`
	HostPath string `json:"host_path,omitempty"`
	Readonly bool   `json:"readonly,omitempty"`
	Upper    *Mount `json:"upper,omitempty"`
	Lower    *Mount `json:"lower,omitempty"`
}

// Mount returns m itself, so that a Mount is a Provider.
func (m Mount) Mount() Mount { return m }

// NewMemoryProvider returns an empty directory that is kept in memory.
func NewMemoryProvider() Provider { return Mount{Type: "memory"} }

// NewRealFSProvider returns a directory of the host.
func NewRealFSProvider(path string) Provider { return Mount{Type: "real_fs", HostPath: path} }

// NewReadonlyProvider returns another provider that cannot be changed.
func NewReadonlyProvider(of Provider) Provider {
	mount := mountOf(of)
	mount.Readonly = true
	return mount
}

// NewOverlayProvider returns lower with changes that are kept in upper.
func NewOverlayProvider(upper, lower Provider) Provider {
	above, below := mountOf(upper), mountOf(lower)
	return Mount{Type: "overlay", Upper: &above, Lower: &below}
}

// mountOf returns the zero Mount, which no sandbox accepts, for nil.
func mountOf(provider Provider) Mount {
	if provider == nil {
		return Mount{}
	}
	return provider.Mount()
}

// MarshalJSON returns the parameters of `create`.
func (c *Config) MarshalJSON() ([]byte, error) {
	params, err := c.params()
	if err != nil {
		return nil, err
	}
	return json.Marshal(params)
}

func (c *Config) params() (map[string]interface{}, error) {
	params := map[string]interface{}{}
	for section, settings := range c.Settings {
		params[section] = settings
	}
	if _, ok := params["hooks"]; ok {
		return nil, configError("Settings has \"hooks\"; set Network.Hooks and VFS.Hooks instead")
	}
	if c.Network.BlockPrivateIPs && c.Network.AllowPrivateIPs {
		return nil, configError("BlockPrivateIPs and AllowPrivateIPs contradict each other")
	}
	put(params, "image", c.Image, c.Image != "")
	put(params, "env", c.Env, c.Env != nil)
	merge(params, "resources", c.resources())
	merge(params, "limits", c.limits())
	merge(params, "filesystem", c.filesystem())
	merge(params, "network", c.network())
	vfs, err := c.vfs()
	if err != nil {
		return nil, err
	}
	merge(params, "vfs", vfs)
	hooks := c.hooks()
	put(params, "hooks", hooks, len(hooks) > 0)
	return params, c.checkHooks(params)
}

// checkHooks refuses file hooks that would never be called.
func (c *Config) checkHooks(params map[string]interface{}) error {
	vfs, _ := params["vfs"].(map[string]interface{})
	if _, mounts := vfs["mounts"]; mounts {
		return nil
	}
	for name, hook := range c.VFS.Hooks.table() {
		if hook != nil {
			return configError("the hook %s guards VFS.Mounts, which is empty", name)
		}
	}
	return nil
}

func (c *Config) resources() map[string]interface{} {
	r, section := c.Resources, map[string]interface{}{}
	put(section, "cpus", r.CPUs, r.CPUs != 0)
	put(section, "memory_mb", r.MemoryMB, r.MemoryMB != 0)
	put(section, "timeout_seconds", r.Timeout.Seconds(), r.Timeout != 0)
	return section
}

func (c *Config) limits() map[string]interface{} {
	r, section := c.Resources, map[string]interface{}{}
	put(section, "lifetime", r.Lifetime.Seconds(), r.Lifetime != 0)
	put(section, "idle_timeout", r.IdleTimeout.Seconds(), r.IdleTimeout != 0)
	return section
}

func (c *Config) filesystem() map[string]interface{} {
	f, section := c.Filesystem, map[string]interface{}{}
	put(section, "root", f.Root, f.Root != "")
	put(section, "overlay", true, f.Overlay)
	return section
}

func (c *Config) network() map[string]interface{} {
	n, section := c.Network, map[string]interface{}{}
	put(section, "allowed_hosts", n.AllowedHosts, n.AllowedHosts != nil)
	put(section, "block_private_ips", !n.AllowPrivateIPs, n.BlockPrivateIPs || n.AllowPrivateIPs)
	put(section, "secrets", n.Secrets, n.Secrets != nil)
	put(section, "publish", n.Publish, n.Publish != nil)
	put(section, "policy_script", c.PolicyScript, c.PolicyScript != "")
	put(section, "policy_secrets", c.PolicySecrets, c.PolicySecrets != nil)
	return section
}

func (c *Config) vfs() (map[string]interface{}, error) {
	section, mounts := map[string]interface{}{}, map[string]Mount{}
	for path, provider := range c.VFS.Mounts {
		if provider == nil {
			return nil, configError("the provider of %s is nil", path)
		}
		mounts[path] = provider.Mount()
	}
	put(section, "direct_mounts", c.VFS.DirectMounts, c.VFS.DirectMounts != nil)
	put(section, "mounts", mounts, len(mounts) > 0)
	return section, nil
}

func put(into map[string]interface{}, key string, value interface{}, given bool) {
	if given {
		into[key] = value
	}
}

// merge adds a section to params. What Settings has for the same section stays, except for the same keys.
func merge(params map[string]interface{}, name string, section map[string]interface{}) {
	if len(section) == 0 {
		return
	}
	both := map[string]interface{}{}
	if below, ok := params[name].(map[string]interface{}); ok {
		for key, value := range below {
			both[key] = value
		}
	}
	for key, value := range section {
		both[key] = value
	}
	params[name] = both
}
