package sandbox

import (
	"context"
	"io/fs"
)

// Change is one path that commands changed in an overlay project; see Config.Filesystem.
type Change struct {
	Path       string     `json:"path"`       // relative to the project
	Kind       string     `json:"kind"`       // "added", "modified", "deleted" or "mode"
	Before     *FileState `json:"before"`     // on the host; nil when it is not there
	After      *FileState `json:"after"`      // in the sandbox; nil when it is not there
	Risk       string     `json:"risk"`       // why Apply needs the path by name; empty when there is no risk
	Conflict   string     `json:"conflict"`   // what happened to the host's file since the sandbox started
	Impossible string     `json:"impossible"` // why it cannot be applied at all
	Notes      []string   `json:"notes"`
	Source     string     `json:"source"` // the host's path that it was moved or copied from, if that is known
}

// FileState is one side of a Change.
type FileState struct {
	Kind   string `json:"kind"` // "file", "directory", "link", "fifo", "socket" or "device"
	Mode   uint32 `json:"mode"` // Unix permission bits
	Size   int64  `json:"size"`
	Target string `json:"target"` // of a link
}

// Perm returns the permission bits as io/fs has them.
func (s FileState) Perm() fs.FileMode { return fs.FileMode(s.Mode & 0o777) }

// Applied says what Apply did.
type Applied struct {
	Applied []string  `json:"applied"`
	Refused []Refusal `json:"refused"`
}

// Refusal is a change that was not applied.
type Refusal struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// ApplyOption changes what Apply does.
type ApplyOption func(map[string]interface{})

// Overwrite applies changes also where the host's file was changed since the sandbox started.
func Overwrite() ApplyOption { return func(p map[string]interface{}) { p["overwrite"] = true } }

// Changes returns what commands changed in an overlay project, compared with the host's files as they are now.
func (vm *VM) Changes(ctx context.Context) ([]Change, error) {
	var got struct {
		Changes []Change `json:"changes"`
	}
	err := vm.call(ctx, "changes", nil, &got)
	return got.Changes, err
}

// Apply copies the changes at or below these paths to the host's files. No paths apply nothing: see ApplyAll.
func (vm *VM) Apply(ctx context.Context, paths []string, options ...ApplyOption) (*Applied, error) {
	if len(paths) == 0 {
		return &Applied{}, ctx.Err()
	}
	for _, path := range paths {
		if err := checkPath("apply", path); err != nil {
			return nil, err
		}
	}
	return vm.apply(ctx, map[string]interface{}{"paths": paths}, options)
}

// ApplyAll copies all changes to the host's files, except those that are risky or in conflict.
func (vm *VM) ApplyAll(ctx context.Context, options ...ApplyOption) (*Applied, error) {
	return vm.apply(ctx, map[string]interface{}{}, options)
}

func (vm *VM) apply(ctx context.Context, params map[string]interface{}, options []ApplyOption) (*Applied, error) {
	for _, option := range options {
		option(params)
	}
	var got Applied
	if err := vm.call(ctx, "apply", params, &got); err != nil {
		return nil, err
	}
	return &got, nil
}

// Discard ends the sandbox and deletes the changes. Close the VM afterwards, as always.
func (vm *VM) Discard(ctx context.Context) error { return vm.call(ctx, "discard", nil, nil) }
