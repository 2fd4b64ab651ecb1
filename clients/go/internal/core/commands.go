package core

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"time"

	"github.com/example/sandbox/internal/wire"
)

// ExecResult is how a command ended, and what it printed.
type ExecResult struct {
	ExitCode    int
	Stdout      string
	Stderr      string
	DurationMS  int64
	Signal      int // that ended it; 0 when none did
	TimedOut    bool
	OutOfMemory bool
	Truncated   bool   // there was more output than is kept
	Note        string // why it ended, when it was not its own doing
}

// Chunk is a piece of a running command's output.
type Chunk struct {
	Stream string // "stdout" or "stderr"
	Data   []byte
}

type ended struct {
	ExitCode    *int   `json:"exit_code"`
	Stdout      []byte `json:"stdout"`
	Stderr      []byte `json:"stderr"`
	DurationMS  int64  `json:"duration_ms"`
	Signal      int    `json:"signal"`
	TimedOut    bool   `json:"timed_out"`
	OutOfMemory bool   `json:"out_of_memory"`
	Truncated   bool   `json:"truncated"`
	Note        string `json:"note"`
	PID         int    `json:"pid"`
	Joined      bool   `json:"joined"`
}

func (e *ended) result() *ExecResult {
	return &ExecResult{
		ExitCode: *e.ExitCode, Stdout: string(e.Stdout), Stderr: string(e.Stderr), DurationMS: e.DurationMS,
		Signal: e.Signal, TimedOut: e.TimedOut, OutOfMemory: e.OutOfMemory, Truncated: e.Truncated, Note: e.Note,
	}
}

// Option says how a command is to run.
type Option func(map[string]interface{})

// WithDir is where the command runs, inside.
func WithDir(path string) Option { return func(p map[string]interface{}) { p["working_dir"] = path } }

// WithEnv sets variables.
func WithEnv(env map[string]string) Option { return func(p map[string]interface{}) { p["env"] = env } }

// WithStdin gives the command its whole input. (Start has Process.Write.)
func WithStdin(data []byte) Option { return func(p map[string]interface{}) { p["stdin"] = data } }

// WithTimeout kills the command when it runs longer.
func WithTimeout(limit time.Duration) Option {
	return func(p map[string]interface{}) { p["timeout"] = limit.Seconds() }
}

// WithMaxOutput keeps at most so many bytes of each stream. (Exec only.)
func WithMaxOutput(bytes int) Option {
	return func(p map[string]interface{}) { p["max_output"] = bytes }
}

// WithArgs runs an argument list, which no shell looks at, instead of the command line.
func WithArgs(argv ...string) Option { return func(p map[string]interface{}) { p["command"] = argv } }

// WithTTY runs the command on a terminal. (Start only.)
func WithTTY(rows, cols int) Option {
	return func(p map[string]interface{}) { p["rows"], p["cols"] = rows, cols }
}

// WithKeep joins the terminal of that name, or starts it; it lives on when this client leaves. (Start with WithTTY.)
func WithKeep(name string) Option { return func(p map[string]interface{}) { p["keep"] = name } }

func asked(command string, options []Option) map[string]interface{} {
	params := map[string]interface{}{"command": command}
	for _, option := range options {
		option(params)
	}
	return params
}

// Exec runs a command line to its end. When ctx ends first, the command is killed.
func (s *Session) Exec(ctx context.Context, command string, options ...Option) (*ExecResult, error) {
	var got ended
	if err := s.call(ctx, "exec", asked(command, options), &got); err != nil {
		return nil, err
	}
	return got.result(), nil
}

// ExecStream runs a command line and hands over its output as it comes.
func (s *Session) ExecStream(ctx context.Context, command string, options ...Option) (*Process, error) {
	stream, err := s.Conn.Stream("exec_stream", asked(command, options))
	if err != nil {
		return nil, explained(err)
	}
	return newProcess(ctx, s, stream), nil
}

// Start runs a command line whose input comes from Process.Write; with WithTTY on a terminal.
func (s *Session) Start(ctx context.Context, command string, options ...Option) (*Process, error) {
	params := asked(command, options)
	method := "exec_pipe"
	if _, terminal := params["rows"]; terminal {
		method = "exec_tty"
	}
	stream, err := s.Conn.Stream(method, params)
	if err != nil {
		return nil, explained(err)
	}
	raw, err := stream.Next(ctx)
	if err != nil {
		return nil, explained(err)
	}
	var first ended
	if err := json.Unmarshal(raw, &first); err != nil {
		stream.Close()
		return nil, err
	}
	process := newProcess(ctx, s, stream)
	process.PID, process.Joined = first.PID, first.Joined
	return process, nil
}

// Process is a command that runs. Close it, or read it to its end with Wait.
type Process struct {
	PID    int
	Joined bool // it is a kept terminal that was there before

	ctx     context.Context
	session *Session
	stream  *wire.Stream
	chunks  chan Chunk
	left    chan struct{}
	done    chan struct{}
	result  *ExecResult
	err     error
}

func newProcess(ctx context.Context, session *Session, stream *wire.Stream) *Process {
	p := &Process{
		ctx: ctx, session: session, stream: stream,
		chunks: make(chan Chunk), left: make(chan struct{}), done: make(chan struct{}),
	}
	go p.read()
	return p
}

func (p *Process) read() {
	defer close(p.done)
	defer close(p.chunks)
	for {
		raw, err := p.stream.Next(p.ctx)
		if err != nil {
			p.err = explained(err)
			return
		}
		var got ended
		if err := json.Unmarshal(raw, &got); err != nil {
			p.err = err
			return
		}
		if got.ExitCode != nil {
			p.stream.Finish()
			p.result = got.result()
			return
		}
		for _, chunk := range []Chunk{{"stdout", got.Stdout}, {"stderr", got.Stderr}} {
			if len(chunk.Data) == 0 {
				continue
			}
			select {
			case p.chunks <- chunk:
			case <-p.left:
			}
		}
	}
}

// Chunks is the output as it comes; the channel closes when the command has ended.
func (p *Process) Chunks() <-chan Chunk { return p.chunks }

// Wait takes what output nobody has taken, until the command has ended.
func (p *Process) Wait() (*ExecResult, error) {
	var stdout, stderr strings.Builder
	for chunk := range p.chunks {
		if chunk.Stream == "stdout" {
			stdout.Write(chunk.Data)
		} else {
			stderr.Write(chunk.Data)
		}
	}
	<-p.done
	if p.err != nil {
		return nil, p.err
	}
	p.result.Stdout, p.result.Stderr = stdout.String(), stderr.String()
	return p.result, nil
}

// Write gives the command input; it returns when the command has been given it.
func (p *Process) Write(data []byte) (int, error) {
	err := p.session.call(p.ctx, "input", map[string]interface{}{"request": p.stream.ID, "data": data}, nil)
	if err != nil {
		return 0, err
	}
	return len(data), nil
}

// CloseStdin ends the command's input.
func (p *Process) CloseStdin() error {
	return p.session.call(p.ctx, "input", map[string]interface{}{"request": p.stream.ID, "end": true}, nil)
}

// Signal sends a signal to the command's process group.
func (p *Process) Signal(signal syscall.Signal) error {
	return p.session.call(p.ctx, "signal", map[string]interface{}{"request": p.stream.ID, "signal": int(signal)}, nil)
}

// Resize tells the command's terminal its new size.
func (p *Process) Resize(rows, cols int) error {
	return p.session.call(p.ctx, "resize", map[string]interface{}{"request": p.stream.ID, "rows": rows, "cols": cols}, nil)
}

// Cancel kills the command (or leaves a kept terminal); Wait then says ErrCancelled.
func (p *Process) Cancel() error {
	return p.session.call(p.ctx, "cancel", map[string]interface{}{"request": p.stream.ID}, nil)
}

// Close leaves the command, which is killed (a kept terminal lives on). Harmless after its end.
func (p *Process) Close() error {
	select {
	case <-p.done:
	default:
		_ = p.Cancel() // it may have ended just now
	}
	select {
	case <-p.left:
	default:
		close(p.left)
	}
	<-p.done
	return nil
}
