package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"
)

// defaultMaxOutput is how much of each stream a result holds, unless WithMaxOutput changes it.
const defaultMaxOutput = 10 << 20

// ExecResult is how a command ended and what it printed. Stdout and Stderr hold exactly the bytes that the command wrote,
// which need not be UTF-8.
type ExecResult struct {
	ExitCode    int
	Stdout      string
	Stderr      string
	DurationMS  int64
	UserTime    time.Duration // processor time in the command's own code
	SystemTime  time.Duration // processor time in the kernel
	MaxRSS      int64         // most memory of one of its processes, in bytes
	Signal      int           // the signal that ended it, or 0
	TimedOut    bool
	OutOfMemory bool
	Truncated   bool   // there was more output than the result holds
	Note        string // why it was ended, if the sandbox ended it
}

// ending is an answer of a method that runs a command: the first, a piece of output, or the last, which has an exit code.
type ending struct {
	PID         int    `json:"pid"`
	Joined      bool   `json:"joined"`
	Stdout      []byte `json:"stdout"`
	Stderr      []byte `json:"stderr"`
	ExitCode    *int   `json:"exit_code"`
	DurationMS  int64  `json:"duration_ms"`
	UserMS      int64  `json:"user_ms"`
	SystemMS    int64  `json:"system_ms"`
	MaxRSSKB    int64  `json:"max_rss_kb"`
	Signal      int    `json:"signal"`
	TimedOut    bool   `json:"timed_out"`
	OutOfMemory bool   `json:"out_of_memory"`
	Truncated   bool   `json:"truncated"`
	Note        string `json:"note"`
}

func (e *ending) result() *ExecResult {
	return &ExecResult{
		ExitCode: *e.ExitCode, Stdout: string(e.Stdout), Stderr: string(e.Stderr), DurationMS: e.DurationMS,
		UserTime:   time.Duration(e.UserMS) * time.Millisecond,
		SystemTime: time.Duration(e.SystemMS) * time.Millisecond,
		MaxRSS:     e.MaxRSSKB << 10, Signal: e.Signal, TimedOut: e.TimedOut, OutOfMemory: e.OutOfMemory,
		Truncated: e.Truncated, Note: e.Note,
	}
}

// Option says how a command is to run.
type Option func(*execution)

type execution struct {
	command   string
	args      []string
	dir       *string
	env       map[string]string
	stdin     io.Reader
	input     []byte // the whole of stdin, when it is known
	timeout   *time.Duration
	maxOutput *int
	rows      int
	cols      int
	tty       bool
	keep      string
	writers   [2]io.Writer
	check     bool
}

// WithDir sets the directory inside where the command starts.
func WithDir(path string) Option { return func(e *execution) { e.dir = &path } }

// WithEnv sets variables, beside those that the sandbox has.
func WithEnv(env map[string]string) Option { return func(e *execution) { e.env = env } }

// WithStdin gives the command data as its whole input.
func WithStdin(data []byte) Option {
	return func(e *execution) { e.input, e.stdin = data, bytes.NewReader(data) }
}

// WithStdinReader gives the command what r returns as its input, up to the end or an error. A Read that is under way when
// the command ends is not waited for.
func WithStdinReader(r io.Reader) Option { return func(e *execution) { e.input, e.stdin = nil, r } }

// WithStdout writes standard output to w as it comes; the result then does not hold it. An error of w kills the command
// and is the error of Exec or Wait. When w is also given to WithStderr, only one Write runs at a time.
func WithStdout(w io.Writer) Option { return func(e *execution) { e.writers[stdout] = w } }

// WithStderr is WithStdout for standard error.
func WithStderr(w io.Writer) Option { return func(e *execution) { e.writers[stderr] = w } }

// WithTimeout kills the command when it runs longer; the result then says TimedOut and holds the output so far.
func WithTimeout(limit time.Duration) Option { return func(e *execution) { e.timeout = &limit } }

// WithMaxOutput sets how many bytes of each stream the result holds. The default is 10 MiB.
func WithMaxOutput(bytes int) Option { return func(e *execution) { e.maxOutput = &bytes } }

// WithArgs runs an argument list without a shell. The command line must then be empty.
func WithArgs(argv ...string) Option { return func(e *execution) { e.args = argv } }

// WithTTY runs the command on a terminal of that size; everything it prints is standard output. For Start only.
func WithTTY(rows, cols int) Option {
	return func(e *execution) { e.rows, e.cols, e.tty = rows, cols, true }
}

// WithKeep gives the command a name, under which it keeps running when this client leaves it and under which Connect
// finds it. With WithTTY, Start joins a terminal of that name that is there already. For Start only.
func WithKeep(name string) Option { return func(e *execution) { e.keep = name } }

// WithCheck makes a command that fails an error: an *ExitError, which is returned together with the result.
func WithCheck() Option { return func(e *execution) { e.check = true } }

func newExecution(command string, options []Option) (*execution, error) {
	e := &execution{command: command}
	for _, option := range options {
		option(e)
	}
	if command != "" && e.args != nil {
		return nil, errors.New("sandbox: give a command line or WithArgs, not both")
	}
	return e, nil
}

func (e *execution) params() map[string]interface{} {
	params := map[string]interface{}{}
	put(params, "command", e.command, e.args == nil && (e.command != "" || !e.tty)) // a terminal without one has a shell
	put(params, "command", e.args, e.args != nil)
	put(params, "env", e.env, e.env != nil)
	if e.dir != nil {
		params["working_dir"] = *e.dir
	}
	if e.timeout != nil {
		params["timeout"] = e.timeout.Seconds()
	}
	return params
}

// name is the command as an error shows it.
func (e *execution) name() string {
	if e.args != nil {
		return strings.Join(e.args, " ")
	}
	return e.command
}

func (e *execution) limit() int {
	if e.maxOutput != nil {
		return *e.maxOutput
	}
	return defaultMaxOutput
}

func (e *execution) checked(result *ExecResult, err error) (*ExecResult, error) {
	failed := result != nil && (result.ExitCode != 0 || result.Signal != 0 || result.TimedOut)
	if err == nil && e.check && failed {
		err = &ExitError{Command: e.name(), Result: result}
	}
	return result, err
}

// Exec runs a shell command line and returns when it has ended. When ctx ends first, the command is killed.
func (vm *VM) Exec(ctx context.Context, command string, options ...Option) (*ExecResult, error) {
	e, err := newExecution(command, options)
	if err != nil {
		return nil, err
	}
	if e.tty || e.keep != "" {
		return nil, errors.New("sandbox: WithTTY and WithKeep are for Start")
	}
	if e.writers != [2]io.Writer{} || (e.stdin != nil && e.input == nil) {
		process, err := vm.start(ctx, e)
		if err != nil {
			return nil, err
		}
		defer process.Close()
		return process.Wait()
	}
	params := e.params()
	put(params, "stdin", e.input, e.input != nil)
	if e.maxOutput != nil {
		params["max_output"] = *e.maxOutput
	}
	var got ending
	if err := vm.call(ctx, "exec", params, &got); err != nil {
		return nil, err
	}
	return e.checked(got.result(), nil)
}

// ExecStream runs a shell command line whose output you read while it runs. Its input is empty, or what WithStdin says.
func (vm *VM) ExecStream(ctx context.Context, command string, options ...Option) (*Process, error) {
	e, err := newExecution(command, options)
	if err != nil {
		return nil, err
	}
	if e.tty || e.keep != "" {
		return nil, errors.New("sandbox: WithTTY and WithKeep are for Start")
	}
	if e.stdin != nil && e.input == nil {
		return vm.start(ctx, e)
	}
	params := e.params()
	put(params, "stdin", e.input, e.input != nil)
	return vm.open(ctx, "exec_stream", params, e)
}

// Start runs a shell command line whose output you read and whose input you write while it runs. With WithTTY it runs on
// a terminal.
func (vm *VM) Start(ctx context.Context, command string, options ...Option) (*Process, error) {
	e, err := newExecution(command, options)
	if err != nil {
		return nil, err
	}
	return vm.start(ctx, e)
}

func (vm *VM) start(ctx context.Context, e *execution) (*Process, error) {
	params := e.params()
	put(params, "keep", e.keep, e.keep != "")
	method := "exec_pipe"
	if e.tty {
		method = "exec_tty"
		params["rows"], params["cols"] = e.rows, e.cols
	}
	process, err := vm.open(ctx, method, params, e)
	if err != nil {
		return nil, err
	}
	if e.stdin != nil {
		go process.feed(e.stdin)
	}
	return process, nil
}

// Connect joins a command that was started with WithKeep(name) and still runs. Of the options, only WithStdout,
// WithStderr, WithMaxOutput and WithCheck apply.
func (vm *VM) Connect(ctx context.Context, name string, options ...Option) (*Process, error) {
	e, err := newExecution("", options)
	if err != nil {
		return nil, err
	}
	e.command = name
	return vm.open(ctx, "connect", map[string]interface{}{"keep": name}, e)
}
