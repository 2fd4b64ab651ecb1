// Package state lists and ends the sandboxes of this user. It runs the `sandbox` command, which is the only program that
// reads the registry.
package state

import (
	"context"
	"encoding/json"
	"time"

	"github.com/example/sandbox"
	"github.com/example/sandbox/internal/command"
)

// VMState is one sandbox as the registry knows it.
type VMState struct {
	ID        string          `json:"id"`
	PID       int             `json:"pid"`    // of the process that owns it, on the host
	Status    string          `json:"status"` // running, stopped or crashed
	Image     string          `json:"image"`
	CreatedAt time.Time       `json:"created_at"`
	Command   []string        `json:"command"`
	Ports     []sandbox.Port  `json:"ports"`  // published ports, while it runs
	Config    json.RawMessage `json:"config"` // set by Get only
}

// StateManager gives access to the registry. An id may be shortened while it is unique; errors.Is finds
// sandbox.ErrNotFound in the error when no sandbox, or more than one, has it.
type StateManager struct{}

// NewStateManager uses the registry that the `sandbox` command uses: $SANDBOX_HOME, or ~/.sandbox.
func NewStateManager() *StateManager { return &StateManager{} }

// List returns every sandbox, the newest first.
func (m *StateManager) List() ([]VMState, error) { return m.ListContext(context.Background()) }

// ListContext is List with a context.
func (m *StateManager) ListContext(ctx context.Context) ([]VMState, error) {
	var found []VMState
	err := command.Ask(ctx, &found, "list", "--json")
	return found, err
}

// Get returns one sandbox.
func (m *StateManager) Get(id string) (VMState, error) { return m.GetContext(context.Background(), id) }

// GetContext is Get with a context.
func (m *StateManager) GetContext(ctx context.Context, id string) (VMState, error) {
	var found VMState
	err := command.AskAbout(ctx, &found, id, "get")
	return found, err
}

// Kill ends a running sandbox and returns when it is gone.
func (m *StateManager) Kill(id string) error { return m.KillContext(context.Background(), id) }

// KillContext is Kill with a context.
func (m *StateManager) KillContext(ctx context.Context, id string) error {
	return command.AskAbout(ctx, nil, id, "kill")
}

// Remove deletes the entry of a sandbox that has ended.
func (m *StateManager) Remove(id string) error { return m.RemoveContext(context.Background(), id) }

// RemoveContext is Remove with a context.
func (m *StateManager) RemoveContext(ctx context.Context, id string) error {
	return command.AskAbout(ctx, nil, id, "rm")
}

// Prune deletes the entries of all sandboxes that have ended, and what crashed ones left behind. It returns their ids.
func (m *StateManager) Prune() ([]string, error) { return m.PruneContext(context.Background()) }

// PruneContext is Prune with a context.
func (m *StateManager) PruneContext(ctx context.Context) ([]string, error) {
	var pruned struct {
		Removed []string `json:"removed"`
	}
	err := command.Ask(ctx, &pruned, "prune", "--json")
	return pruned.Removed, err
}
