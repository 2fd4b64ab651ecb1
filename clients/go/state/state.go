// Package state is the sandboxes of this user, running or not. It asks the `sandbox` command, so that there is one
// reading of the registry and not two.
package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"time"

	"github.com/example/sandbox"
)

// VMState is one sandbox as the registry knows it.
type VMState struct {
	ID        string          `json:"id"`
	PID       int             `json:"pid"`
	Status    string          `json:"status"` // running, stopped, crashed
	Image     string          `json:"image"`
	CreatedAt time.Time       `json:"created_at"`
	Command   []string        `json:"command"`
	Config    json.RawMessage `json:"config"` // Get only
}

// StateManager is the way to them.
type StateManager struct{}

// NewStateManager finds the registry where the `sandbox` command does: $SANDBOX_HOME, or ~/.sandbox.
func NewStateManager() *StateManager { return &StateManager{} }

// List is every sandbox, the newest first.
func (m *StateManager) List() ([]VMState, error) {
	var found []VMState
	return found, ask(&found, "list", "--json")
}

// Get is one sandbox; its id may be shortened while it is unique.
func (m *StateManager) Get(id string) (VMState, error) {
	var found VMState
	return found, ask(&found, "get", id)
}

// Kill ends a running sandbox and returns when it is gone.
func (m *StateManager) Kill(id string) error { return ask(nil, "kill", id) }

// Remove deletes an ended sandbox's entry.
func (m *StateManager) Remove(id string) error { return ask(nil, "rm", id) }

// Prune deletes every ended entry, and what crashed sandboxes left behind.
func (m *StateManager) Prune() ([]string, error) {
	var pruned struct {
		Removed []string `json:"removed"`
	}
	err := ask(&pruned, "prune", "--json")
	return pruned.Removed, err
}

func ask(answer interface{}, words ...string) error {
	command := sandbox.Command()
	argv := append(command[:len(command)-1:len(command)-1], words...) // without its --rpc
	cmd := exec.Command(argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		if said := strings.TrimPrefix(strings.TrimSpace(stderr.String()), "sandbox: "); said != "" {
			return errors.New(said)
		}
		return err
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(output, answer)
}
