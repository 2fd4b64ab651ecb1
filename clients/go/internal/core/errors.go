package core

import (
	"errors"
	"io/fs"

	"github.com/example/sandbox/internal/wire"
)

// What errors.Is finds in an *Error. Errors about files are those of io/fs: errors.Is(err, fs.ErrNotExist) works.
var (
	ErrNotStarted = errors.New("the sandbox could not be started")
	ErrClosed     = errors.New("the sandbox has ended")
	ErrCommand    = errors.New("the command never ran")
	ErrDenied     = errors.New("a policy refused")
	ErrConfig     = errors.New("the configuration makes no sense")
	ErrCancelled  = errors.New("cancelled")
	ErrBlocked    = errors.New("blocked by a hook")
)

var kinds = map[int]error{
	-32000: ErrNotStarted,
	-32001: ErrClosed,
	-32003: ErrClosed,
	-32004: ErrCommand,
	-32006: ErrDenied,
	-32007: ErrConfig,
	-32008: ErrCancelled,
}

var files = map[string]error{"ENOENT": fs.ErrNotExist, "EEXIST": fs.ErrExist, "EACCES": fs.ErrPermission, "EPERM": fs.ErrPermission}

// Error is an error response of the sandbox. The codes are in the table of docs/rpc.md.
type Error struct {
	Code    int
	Message string
	Data    map[string]interface{}
}

func (e *Error) Error() string { return e.Message }

// Is makes errors.Is work with the values above and those of io/fs.
func (e *Error) Is(target error) bool {
	if name, ok := e.Data["name"].(string); ok && files[name] == target {
		return true
	}
	return kinds[e.Code] == target
}

func explained(err error) error {
	var response *wire.Error
	if errors.As(err, &response) {
		return &Error{Code: response.Code, Message: response.Message, Data: response.Data}
	}
	if errors.Is(err, wire.ErrEnded) {
		return ErrClosed
	}
	return err
}
