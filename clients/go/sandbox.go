// Package sandbox runs code you do not trust in a sandbox on this machine.
//
// It drives the `sandbox` command over JSON-RPC; one process per sandbox, which ends with it. Every method that waits
// takes a context: when it ends, so does what was waited for.
//
//	vm, err := sandbox.Create(ctx, &sandbox.Config{Image: "standard"})
//	if err != nil { … }
//	defer vm.Close()
//	result, err := vm.Exec(ctx, "echo hello")
//
// Package client has the same without contexts, and package embed hooks on *http.Request.
package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/example/sandbox/internal/core"
	"github.com/example/sandbox/internal/wire"
)

// What commands are asked for and answer with.
type (
	ExecResult = core.ExecResult
	Chunk      = core.Chunk
	Process    = core.Process
	Option     = core.Option
	Error      = core.Error
	FileInfo   = core.FileInfo
)

// How a command is to run.
var (
	WithDir       = core.WithDir
	WithEnv       = core.WithEnv
	WithStdin     = core.WithStdin
	WithTimeout   = core.WithTimeout
	WithMaxOutput = core.WithMaxOutput
	WithArgs      = core.WithArgs
	WithTTY       = core.WithTTY
	WithKeep      = core.WithKeep
)

// What errors.Is finds in an error; those about files are fs.ErrNotExist and its siblings.
var (
	ErrNotStarted = core.ErrNotStarted
	ErrClosed     = core.ErrClosed
	ErrCommand    = core.ErrCommand
	ErrDenied     = core.ErrDenied
	ErrConfig     = core.ErrConfig
	ErrCancelled  = core.ErrCancelled
	ErrBlocked    = core.ErrBlocked // a hook returns it to refuse
)

// VM is one sandbox. It is safe to use from many goroutines.
type VM struct {
	*core.Session
	events *eventQueue
}

// Command is what Create runs; $SANDBOX_COMMAND, or `sandbox --rpc`.
func Command() []string {
	if command := os.Getenv("SANDBOX_COMMAND"); command != "" {
		return append(strings.Fields(command), "--rpc")
	}
	return []string{"sandbox", "--rpc"}
}

// Create starts a sandbox; it ends with Close, or with this process.
func Create(ctx context.Context, config *Config) (*VM, error) {
	if config == nil {
		config = &Config{}
	}
	events := newEventQueue()
	conn, err := wire.Start(Command(), wire.Handlers{Event: events.put, Ended: events.end, Hook: config.hook})
	if err != nil {
		return nil, err
	}
	session, err := core.Create(ctx, conn, config)
	if err != nil {
		return nil, err
	}
	return &VM{session, events}, nil
}

// Attach talks to a sandbox that runs already; Close then only leaves it.
func Attach(id string) (*VM, error) {
	// Through a descriptor: the path of a deep home would be longer than a socket's address may be.
	directory, err := os.Open(filepath.Join(Home(), "vms", id))
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	events := newEventQueue()
	path := fmt.Sprintf("/proc/self/fd/%d/socket", directory.Fd())
	conn, err := wire.Dial(path, wire.Handlers{Event: events.put, Ended: events.end})
	if err != nil {
		return nil, err
	}
	return &VM{core.Attached(conn, id), events}, nil
}

// Home is where the sandboxes of this user are registered: $SANDBOX_HOME, or ~/.sandbox.
func Home() string {
	if home := os.Getenv("SANDBOX_HOME"); home != "" {
		return home
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".sandbox")
}

// WriteFile makes or replaces a file inside.
func (vm *VM) WriteFile(path string, content []byte) error {
	return vm.WriteFileContext(context.Background(), path, content, 0o644)
}

// ReadFile is the content of a file inside.
func (vm *VM) ReadFile(path string) ([]byte, error) {
	return vm.ReadFileContext(context.Background(), path)
}

// ListFiles is what a directory inside holds.
func (vm *VM) ListFiles(path string) ([]FileInfo, error) {
	return vm.ListFilesContext(context.Background(), path)
}

// Events is what happens in the sandbox, from now on; the channel closes when it has ended. Who does not read in
// time loses events, never the sandbox its pace.
func (vm *VM) Events() <-chan Event { return vm.events.channel }
