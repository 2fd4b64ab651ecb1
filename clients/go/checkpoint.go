package sandbox

import "context"

// Checkpoint is a saved sandbox. Saves says what: "machine" is memory, processes and files, or "files".
type Checkpoint struct {
	Name    string   `json:"name"`
	Sandbox string   `json:"sandbox"` // the id of the one that was saved
	Engine  string   `json:"engine"`
	Saves   string   `json:"saves"`
	Size    int64    `json:"size"`    // bytes on the disk
	Created float64  `json:"created"` // seconds since 1970
	Lost    []string `json:"lost"`    // files that were open and had no path any more
}

// Pause stops everything inside until Resume. Commands and file methods are refused meanwhile.
func (vm *VM) Pause(ctx context.Context) error {
	return vm.call(ctx, "pause", nil, nil)
}

// Resume has everything inside go on.
func (vm *VM) Resume(ctx context.Context) error {
	return vm.call(ctx, "resume", nil, nil)
}

// Checkpoint saves the sandbox, which goes on running. With an empty name, one is made up.
func (vm *VM) Checkpoint(ctx context.Context, name string) (*Checkpoint, error) {
	params := map[string]interface{}{}
	if name != "" {
		params["name"] = name
	}
	var got Checkpoint
	if err := vm.call(ctx, "checkpoint", params, &got); err != nil {
		return nil, err
	}
	return &got, nil
}

// Fork starts n sandboxes that go on from here, and returns their ids. They end with this one.
func (vm *VM) Fork(ctx context.Context, n int) ([]string, error) {
	var got struct {
		IDs []string `json:"ids"`
	}
	err := vm.call(ctx, "fork", map[string]interface{}{"n": n}, &got)
	return got.IDs, err
}

// Restore starts a sandbox that goes on from a checkpoint. It ends with Close, or with this program. A checkpoint holds
// neither secrets nor values of variables: config gives those again that have no source of their own, and may be nil.
func Restore(ctx context.Context, checkpoint string, config *Config) (*VM, error) {
	return begin(ctx, config, "restore", from(checkpoint), startProgram)
}

// from makes the parameters of restore.
func from(checkpoint string) asking {
	return func(params map[string]interface{}) map[string]interface{} {
		asked := map[string]interface{}{"checkpoint": checkpoint, "config": params}
		if hooks, ok := params["hooks"]; ok {
			asked["hooks"] = hooks
			delete(params, "hooks")
		}
		return asked
	}
}
