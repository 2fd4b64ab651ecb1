// Package client is the plain client: no contexts, and a configuration that is the JSON of `create`.
//
//	import sandbox "github.com/example/sandbox/client"
//
//	sb, err := sandbox.Create(&sandbox.Config{Image: "standard"})
package client

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/example/sandbox"
	"github.com/example/sandbox/internal/core"
	"github.com/example/sandbox/internal/wire"
)

// Config is what a sandbox is asked to be; absent sections have the safe defaults.
type Config struct {
	Image     string            `json:"image,omitempty"`
	Resources *Resources        `json:"resources,omitempty"`
	Network   *NetworkConfig    `json:"network,omitempty"`
	VFS       *VFSConfig        `json:"vfs,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
}

// Resources is what the sandbox may use up.
type Resources struct {
	CPUs           int `json:"cpus,omitempty"`
	MemoryMB       int `json:"memory_mb,omitempty"`
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
}

// NetworkConfig says whom the sandbox may talk to.
type NetworkConfig struct {
	AllowedHosts    []string          `json:"allowed_hosts,omitempty"`
	BlockPrivateIPs bool              `json:"block_private_ips,omitempty"`
	Secrets         map[string]Secret `json:"secrets,omitempty"`
	PolicyScript    string            `json:"policy_script,omitempty"`
}

// VFSConfig is the directories that are not simply the project.
type VFSConfig struct {
	DirectMounts map[string]DirectMount `json:"direct_mounts,omitempty"`
	Mounts       map[string]Mount       `json:"mounts,omitempty"`
}

// The rest is shared with package sandbox.
type (
	Secret      = sandbox.Secret
	DirectMount = sandbox.DirectMount
	Mount       = sandbox.Mount
	ExecResult  = sandbox.ExecResult
	FileInfo    = sandbox.FileInfo
)

// Event is something that happened; the field of its Type is set.
type Event struct {
	Type      string                  `json:"type"`
	Timestamp int64                   `json:"timestamp"`
	Network   *sandbox.NetworkEvent   `json:"network,omitempty"`
	File      *sandbox.FileEvent      `json:"file,omitempty"`
	Exec      *sandbox.ExecEvent      `json:"exec,omitempty"`
	Lifecycle *sandbox.LifecycleEvent `json:"lifecycle,omitempty"`
}

// Sandbox is one sandbox. It is safe to use from many goroutines.
type Sandbox struct {
	session *core.Session
	events  *queue
}

// Create starts a sandbox; it ends with Close, or with this process.
func Create(config *Config) (*Sandbox, error) {
	if config == nil {
		config = &Config{}
	}
	events := &queue{channel: make(chan Event, 4096)}
	conn, err := wire.Start(sandbox.Command(), wire.Handlers{Event: events.put, Ended: events.end})
	if err != nil {
		return nil, err
	}
	session, err := core.Create(context.Background(), conn, config)
	if err != nil {
		return nil, err
	}
	return &Sandbox{session, events}, nil
}

// ID is the sandbox's name.
func (sb *Sandbox) ID() string { return sb.session.ID() }

// Exec runs a command line to its end.
func (sb *Sandbox) Exec(command string) (*ExecResult, error) {
	return sb.session.Exec(context.Background(), command)
}

// WriteFile makes or replaces a file inside.
func (sb *Sandbox) WriteFile(path string, content []byte) error {
	return sb.session.WriteFileContext(context.Background(), path, content, 0o644)
}

// ReadFile is the content of a file inside.
func (sb *Sandbox) ReadFile(path string) ([]byte, error) {
	return sb.session.ReadFileContext(context.Background(), path)
}

// ListFiles is what a directory inside holds.
func (sb *Sandbox) ListFiles(path string) ([]FileInfo, error) {
	return sb.session.ListFilesContext(context.Background(), path)
}

// Events is what happens from now on; the channel closes when the sandbox has ended.
func (sb *Sandbox) Events() <-chan Event { return sb.events.channel }

// Close ends the sandbox.
func (sb *Sandbox) Close() error { return sb.session.Close() }

type queue struct {
	mu      sync.Mutex
	ended   bool
	channel chan Event
}

func (q *queue) put(raw json.RawMessage) {
	var event Event
	if json.Unmarshal(raw, &event) != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	select {
	case q.channel <- event:
	default: // who does not read in time loses events, never the sandbox its pace
	}
}

func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended = true
		close(q.channel)
	}
}
