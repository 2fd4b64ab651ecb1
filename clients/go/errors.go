package sandbox

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/example/sandbox/internal/command"
	"github.com/example/sandbox/internal/wire"
)

// Errors that errors.Is finds in what this package returns. An error about a file is the operating system's own:
// errors.Is(err, fs.ErrNotExist) and errors.Is(err, syscall.EROFS) work.
var (
	ErrNotStarted = errors.New("the sandbox could not be started")
	ErrClosed     = errors.New("the sandbox has ended")
	ErrNotFound   = command.ErrNotFound // no sandbox has that id, or several ids begin that way; also a kept command
	ErrCommand    = errors.New("the command could not be run")
	ErrDenied     = errors.New("a policy refused")
	ErrConfig     = errors.New("invalid configuration")
	ErrCancelled  = errors.New("cancelled")
	ErrBusy       = errors.New("too many requests at a time")
	ErrBlocked    = errors.New("blocked by a hook") // a hook returns it to refuse
)

var kinds = map[int]error{
	-32000: ErrNotStarted,
	-32001: ErrClosed,
	-32003: ErrClosed,
	-32004: ErrCommand,
	-32006: ErrDenied,
	-32007: ErrConfig,
	-32008: ErrCancelled,
	-32009: ErrBusy,
	-32011: os.ErrProcessDone,
}

// Error is an error response of the sandbox. The table in docs/rpc.md lists the codes and what Data holds.
type Error struct {
	Code    int
	Message string
	Data    map[string]interface{}
}

func (e *Error) Error() string { return e.Message }

// Template returns the message before its values were put in, in English: the key of a translation. It is empty for an
// error of the operating system.
func (e *Error) Template() string {
	template, _ := e.Data["template"].(string)
	return template
}

// Values returns the values of the template, as docs/rpc.md describes them.
func (e *Error) Values() map[string]interface{} {
	values, _ := e.Data["values"].(map[string]interface{})
	return values
}

// Unwrap returns the syscall.Errno of an error about a file, and otherwise the error of this package that Code stands
// for. It returns nil when there is none.
func (e *Error) Unwrap() error {
	if number, ok := e.Data["errno"].(float64); ok {
		return syscall.Errno(number)
	}
	if e.Data["kind"] == "NotFound" {
		return ErrNotFound
	}
	return kinds[e.Code]
}

// ExitError is the error of a command that failed, when WithCheck asked for one.
type ExitError struct {
	Command string
	Result  *ExecResult
}

func (e *ExitError) Error() string {
	switch {
	case e.Result.TimedOut:
		return fmt.Sprintf("%s: timed out", e.Command)
	case e.Result.Signal != 0:
		return fmt.Sprintf("%s: ended by signal %d (%s)", e.Command, e.Result.Signal, syscall.Signal(e.Result.Signal))
	}
	return fmt.Sprintf("%s: exit status %d", e.Command, e.Result.ExitCode)
}

// translated turns an error of the connection into one of this package.
func translated(err error) error {
	var response *wire.Error
	if errors.As(err, &response) {
		return &Error{Code: response.Code, Message: response.Message, Data: response.Data}
	}
	if errors.Is(err, wire.ErrEnded) {
		return ErrClosed
	}
	return err
}

func configError(format string, arguments ...interface{}) error {
	return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, arguments...))
}
