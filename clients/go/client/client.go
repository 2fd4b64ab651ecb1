// Package client is a small API without contexts, whose configuration is the JSON of `create` (docs/rpc.md).
//
//	import sandbox "github.com/example/sandbox/client"
//
//	sb, err := sandbox.Create(&sandbox.Config{Image: "standard"})
//
// [Sandbox.VM] gives access to everything that package github.com/example/sandbox can do.
package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/example/sandbox"
)

// Config describes a sandbox. Sections that are absent have the safe defaults.
type Config struct {
	Image     string            `json:"image,omitempty"`
	Resources *Resources        `json:"resources,omitempty"`
	Network   *NetworkConfig    `json:"network,omitempty"`
	VFS       *VFSConfig        `json:"vfs,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
}

// Resources is what a sandbox may use.
type Resources struct {
	CPUs           int `json:"cpus,omitempty"`
	MemoryMB       int `json:"memory_mb,omitempty"`
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
}

// NetworkConfig says which hosts the sandbox may connect to.
type NetworkConfig struct {
	AllowedHosts    []string          `json:"allowed_hosts,omitempty"`
	BlockPrivateIPs bool              `json:"block_private_ips,omitempty"`
	Secrets         map[string]Secret `json:"secrets,omitempty"`
	PolicyScript    string            `json:"policy_script,omitempty"`
}

// VFSConfig lists directories beside the project, by their path inside.
type VFSConfig struct {
	DirectMounts map[string]DirectMount `json:"direct_mounts,omitempty"`
	Mounts       map[string]Mount       `json:"mounts,omitempty"`
}

// These types are the same as in package sandbox.
type (
	Secret      = sandbox.Secret
	DirectMount = sandbox.DirectMount
	Mount       = sandbox.Mount
	ExecResult  = sandbox.ExecResult
	FileInfo    = sandbox.FileInfo
)

// Event is something that happened. The field that Type names is set.
type Event struct {
	Type      string
	Timestamp int64 // seconds since 1970
	Time      time.Time
	Network   *sandbox.NetworkEvent
	File      *sandbox.FileEvent
	ExecStart *sandbox.ExecStartEvent
	Exec      *sandbox.ExecEvent
	Log       *sandbox.LogEvent
	Ask       *sandbox.Ask
	Lifecycle *sandbox.LifecycleEvent
}

// Sandbox is one sandbox. It is safe for concurrent use.
type Sandbox struct {
	vm     *sandbox.VM
	events chan Event
	closed chan struct{}
}

// Create starts a sandbox. It ends with Close, or with this program. A nil config is the safe default.
func Create(config *Config) (*Sandbox, error) {
	settings := map[string]interface{}{}
	if config != nil {
		plain, err := json.Marshal(config)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(plain, &settings); err != nil {
			return nil, err
		}
	}
	vm, err := sandbox.Create(context.Background(), &sandbox.Config{Settings: settings})
	if err != nil {
		return nil, err
	}
	sb := &Sandbox{vm: vm, events: make(chan Event, 4096), closed: make(chan struct{})}
	go sb.forward()
	return sb, nil
}

// forward passes events on, and ends with the sandbox. It drops events when nobody reads them.
func (sb *Sandbox) forward() {
	defer close(sb.closed)
	defer close(sb.events)
	for event := range sb.vm.Events() {
		select {
		case sb.events <- flat(event):
		default:
		}
	}
}

func flat(event sandbox.Event) Event {
	flat := Event{Time: event.Time(), Timestamp: event.Time().Unix()}
	switch e := event.(type) {
	case *sandbox.NetworkEvent:
		flat.Type, flat.Network = "network", e
	case *sandbox.FileEvent:
		flat.Type, flat.File = "file", e
	case *sandbox.ExecStartEvent:
		flat.Type, flat.ExecStart = "exec_start", e
	case *sandbox.ExecEvent:
		flat.Type, flat.Exec = "exec", e
	case *sandbox.LogEvent:
		flat.Type, flat.Log = "log", e
	case *sandbox.Ask:
		flat.Type, flat.Ask = "ask", e
	case *sandbox.LifecycleEvent:
		flat.Type, flat.Lifecycle = "lifecycle", e
	}
	return flat
}

// VM returns the same sandbox with the API of package github.com/example/sandbox. Its Events are taken already.
func (sb *Sandbox) VM() *sandbox.VM { return sb.vm }

// ID returns the sandbox's name.
func (sb *Sandbox) ID() string { return sb.vm.ID() }

// Exec runs a shell command line and returns when it has ended.
func (sb *Sandbox) Exec(command string) (*ExecResult, error) {
	return sb.vm.Exec(context.Background(), command)
}

// WriteFile creates or replaces a file inside.
func (sb *Sandbox) WriteFile(path string, content []byte) error {
	return sb.vm.WriteFile(path, content)
}

// ReadFile returns the content of a file inside.
func (sb *Sandbox) ReadFile(path string) ([]byte, error) { return sb.vm.ReadFile(path) }

// ListFiles returns what a directory inside holds.
func (sb *Sandbox) ListFiles(path string) ([]FileInfo, error) { return sb.vm.ListFiles(path) }

// Events returns what happens in the sandbox. The channel is closed when the sandbox has ended. It holds 4096 events;
// when nobody reads, further events are lost.
func (sb *Sandbox) Events() <-chan Event { return sb.events }

// Close ends the sandbox. It can be called more than once.
func (sb *Sandbox) Close() error {
	err := sb.vm.Close()
	<-sb.closed
	return err
}
