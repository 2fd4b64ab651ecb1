package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/example/sandbox/internal/command"
	"github.com/example/sandbox/internal/wire"
)

// closePatience is how long Close waits for the sandbox to end before it kills the process that owns it.
const closePatience = 10 * time.Second

// VM is one sandbox. It is safe for concurrent use.
type VM struct {
	conn   *wire.Conn
	events *eventQueue
	info   vmInfo
	owner  bool
}

type vmInfo struct {
	ID        string            `json:"id"`
	Engine    string            `json:"engine"`
	Directory string            `json:"directory"`
	Env       map[string]string `json:"env"`
}

// Command returns the command that Create runs: $SANDBOX_COMMAND or `sandbox`, followed by --rpc.
func Command() []string { return append(command.Words(), "--rpc") }

// Home returns the directory where the sandboxes of this user are registered: $SANDBOX_HOME, or ~/.sandbox.
func Home() string {
	if home := os.Getenv("SANDBOX_HOME"); home != "" {
		return home
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".sandbox")
}

// Create starts a sandbox. It ends with Close, or with this program. A nil config is the safe default.
func Create(ctx context.Context, config *Config) (*VM, error) {
	return begin(ctx, config, "create", same, startProgram)
}

// asking makes the parameters of a method from those of the configuration.
type asking func(params map[string]interface{}) map[string]interface{}

func same(params map[string]interface{}) map[string]interface{} { return params }

// starting makes the connection that a sandbox is created over.
type starting func(ctx context.Context, config *Config, handlers wire.Handlers) (*wire.Conn, error)

func startProgram(_ context.Context, config *Config, handlers wire.Handlers) (*wire.Conn, error) {
	return wire.Start(Command(), config.log(), handlers)
}

// begin creates a sandbox over a new connection, by a method whose parameters hold the configuration.
func begin(ctx context.Context, config *Config, method string, asking asking, start starting) (*VM, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var own Config // what the caller does with theirs afterwards changes nothing
	if config != nil {
		own = *config
	}
	params, err := own.params()
	if err != nil {
		return nil, err
	}
	vm := &VM{events: newEventQueue(), owner: true}
	vm.conn, err = start(ctx, &own, wire.Handlers{
		Event: vm.events.put, Ended: vm.events.end, Hook: own.hook, Log: own.log(),
	})
	if err != nil {
		return nil, err
	}
	if err := vm.conn.Call(ctx, method, asking(params), &vm.info); err != nil {
		vm.end(ctx)
		return nil, translated(err)
	}
	return vm, nil
}

// Attach connects to a running sandbox. The id may be shortened while it is unique. Close then leaves the sandbox
// running; Shutdown ends it. It returns ErrNotFound or, when the sandbox has ended, ErrClosed.
func Attach(id string) (*VM, error) { return AttachContext(context.Background(), id) }

// AttachContext is Attach with a context, which limits the time to connect.
func AttachContext(ctx context.Context, id string) (*VM, error) {
	var entry struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if err := command.AskAbout(ctx, &entry, id, "get"); err != nil {
		return nil, err
	}
	if entry.Status != "running" {
		return nil, fmt.Errorf("%s is %s, not running: %w", entry.ID, entry.Status, ErrClosed)
	}
	vm := &VM{events: newEventQueue()}
	if err := vm.dial(ctx, entry.ID); err != nil {
		return nil, err
	}
	if err := vm.conn.Call(ctx, "info", nil, &vm.info); err != nil {
		vm.end(ctx)
		return nil, translated(err)
	}
	return vm, nil
}

func (vm *VM) dial(ctx context.Context, id string) error {
	directory, err := os.Open(filepath.Join(Home(), "vms", id))
	if err != nil {
		return err
	}
	defer directory.Close()
	path := filepath.Join(directory.Name(), "socket")
	if len(path) > 100 { // the address of a socket has at most 107 bytes, so name the directory by its descriptor
		path = fmt.Sprintf("/proc/self/fd/%d/socket", directory.Fd())
	}
	vm.conn, err = wire.Dial(ctx, path, wire.Handlers{Event: vm.events.put, Ended: vm.events.end})
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", id, ErrClosed)
	}
	return nil
}

// ID returns the sandbox's name: "vm-" and eight hexadecimal digits.
func (vm *VM) ID() string { return vm.info.ID }

// Engine returns the name of the engine that isolates the sandbox, such as "bubblewrap".
func (vm *VM) Engine() string { return vm.info.Engine }

// Directory returns the directory inside where commands start.
func (vm *VM) Directory() string { return vm.info.Directory }

// Env returns the variables of Config.Env as commands see them, with a placeholder for each secret.
func (vm *VM) Env() map[string]string {
	env := make(map[string]string, len(vm.info.Env))
	for name, value := range vm.info.Env {
		env[name] = value
	}
	return env
}

// Close ends a sandbox that Create started, with everything that runs in it, and leaves one that was attached to. It can
// be called more than once. When the sandbox has not ended after ten seconds, Close kills the process that owns it.
func (vm *VM) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if vm.owner {
		// An error is no reason to stop here: the end of the connection ends the sandbox as well.
		_ = vm.conn.Call(ctx, "close", map[string]float64{"grace": 0}, nil)
	}
	return vm.conn.Close(ctx)
}

// Shutdown ends the sandbox when the commands that run have ended. New requests fail. When ctx ends first, Shutdown kills
// what is left and returns the context's error. It also ends a sandbox that was attached to.
func (vm *VM) Shutdown(ctx context.Context) error {
	grace := 1e9 // seconds: no limit but ctx
	if deadline, ok := ctx.Deadline(); ok {
		// The rest of the time is for ending the sandbox itself.
		grace = 0.75 * time.Until(deadline).Seconds()
		if grace < 0 {
			grace = 0
		}
	}
	err := vm.conn.Call(ctx, "close", map[string]float64{"grace": grace}, nil)
	if closed := vm.conn.Close(ctx); closed != nil {
		return closed
	}
	if !vm.owner {
		return translated(err) // with the owner's process gone, the sandbox has certainly ended
	}
	return nil
}

// end gives up a sandbox that is not in use yet.
func (vm *VM) end(ctx context.Context) {
	patience, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	_ = vm.conn.Close(patience)
}

func (vm *VM) call(ctx context.Context, method string, params, result interface{}) error {
	return translated(vm.conn.Call(ctx, method, params, result))
}
