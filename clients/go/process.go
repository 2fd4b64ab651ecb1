package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"syscall"

	"github.com/example/sandbox/internal/wire"
)

// inputPiece is how much input goes into one request.
const inputPiece = 256 << 10

// Chunk is a piece of a command's output. Stream is "stdout" or "stderr".
type Chunk struct {
	Stream string
	Data   []byte
}

// Process is a command that runs. Call Wait or Close, or end its context; otherwise a command whose output nobody reads
// waits until the sandbox is closed. A Process is safe for concurrent use.
type Process struct {
	PID    int  // inside the sandbox; 0 for ExecStream
	Joined bool // it is a kept command that ran before

	vm      *VM
	ctx     context.Context
	request *wire.Request
	how     *execution
	out     *output

	started   chan struct{} // closed at the first answer
	startOnce sync.Once
	done      chan struct{} // closed when result or err is set
	doneOnce  sync.Once
	result    *ExecResult
	err       error

	left     chan struct{} // closed when nobody wants the output any more
	leftOnce sync.Once

	copied  chan struct{} // closed when the writers have been given everything; nil without writers
	copyErr error

	mu     sync.Mutex
	chunks chan Chunk // nil until Chunks is called
	stdin  sync.Mutex // one Write at a time, whole

	waiting   sync.Mutex
	collected bool
}

// open sends a request that runs a command. It returns when the command runs; for exec_stream, at once.
func (vm *VM) open(ctx context.Context, method string, params map[string]interface{}, how *execution) (*Process, error) {
	p := &Process{
		vm: vm, ctx: ctx, how: how, started: make(chan struct{}), done: make(chan struct{}), left: make(chan struct{}),
	}
	p.out = &output{grant: func(bytes int) {
		vm.conn.Notify("more", map[string]interface{}{"request": p.request.ID, "bytes": bytes})
	}}
	for stream, w := range how.writers {
		if w != nil {
			p.out.claim(stream, writer)
		}
	}
	params["credit"] = window
	var err error
	if p.request, err = vm.conn.Open(ctx, method, params, p.answer); err != nil {
		return nil, translated(err)
	}
	if method != "exec_stream" {
		select {
		case <-p.started:
		case <-p.done:
		case <-ctx.Done():
			p.leave(ctx.Err())
		}
		if p.failed() {
			return nil, p.err
		}
	}
	if ctx.Done() != nil {
		go p.watch()
	}
	if how.writers != [2]io.Writer{} {
		p.copied = make(chan struct{})
		go p.copyOut()
	}
	return p, nil
}

// failed reports whether the command ended before it ran.
func (p *Process) failed() bool {
	select {
	case <-p.done:
		return p.err != nil
	default:
		return false
	}
}

// answer takes one answer. The goroutine that reads the connection calls it, perhaps before p.request is set.
func (p *Process) answer(raw json.RawMessage, err error) (last bool) {
	if err != nil {
		p.finish(nil, translated(err))
		return true
	}
	var got ending
	if err := json.Unmarshal(raw, &got); err != nil {
		p.finish(nil, err)
		return true
	}
	if got.ExitCode != nil {
		p.finish(got.result(), nil)
		return true
	}
	p.startOnce.Do(func() {
		p.PID, p.Joined = got.PID, got.Joined
		close(p.started)
	})
	p.out.put(stdout, got.Stdout)
	p.out.put(stderr, got.Stderr)
	return false
}

// finish says how the command ended. Only the first call counts.
func (p *Process) finish(result *ExecResult, err error) {
	p.doneOnce.Do(func() {
		p.result, p.err = result, err
		end := err
		if end == nil {
			end = io.EOF
		}
		p.out.end(end, false)
		close(p.done)
	})
}

// leave gives up the command, which is killed unless it is kept, and what it printed.
func (p *Process) leave(err error) {
	p.request.Cancel()
	p.finish(nil, err)
	p.abandon(err)
}

// abandon drops the output that nobody has read.
func (p *Process) abandon(err error) {
	p.out.end(err, true)
	p.leftOnce.Do(func() { close(p.left) })
}

func (p *Process) watch() {
	select {
	case <-p.ctx.Done():
		p.leave(p.ctx.Err())
	case <-p.done:
	}
}

// Stdout returns the standard output. Read it to its end, close the process or end its context: Wait does not read it
// then. Call Stdout and Stderr both, or give the other one a writer, when the command may print much on both.
func (p *Process) Stdout() io.Reader { return p.reader(stdout) }

// Stderr returns the standard error; see Stdout.
func (p *Process) Stderr() io.Reader { return p.reader(stderr) }

func (p *Process) reader(stream int) io.Reader {
	if p.how.writers[stream] == nil {
		p.out.claim(stream, reader)
	}
	return streamReader{p.out, stream}
}

// Chunks returns the output of both streams as it comes. The channel is closed when the command has ended and everything
// was received from it, when the context ends, and when the process or the sandbox is closed. All callers share one
// channel.
func (p *Process) Chunks() <-chan Chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.chunks == nil {
		p.chunks = make(chan Chunk)
		go p.pump(p.chunks)
	}
	return p.chunks
}

func (p *Process) pump(chunks chan<- Chunk) {
	defer close(chunks)
	for {
		stream, data, err := p.out.next(anyone)
		if err != nil {
			return
		}
		select {
		case chunks <- Chunk{streamNames[stream], data}:
		case <-p.left:
			return
		case <-p.ctx.Done():
			return
		case <-p.vm.conn.Done():
			return
		}
	}
}

// copyOut gives the output to the writers that were asked for. One goroutine serves both: they may be the same.
func (p *Process) copyOut() {
	defer close(p.copied)
	for {
		stream, data, err := p.out.next(writer)
		if err != nil {
			return
		}
		if _, err := p.how.writers[stream].Write(data); err != nil {
			p.copyErr = err
			p.leave(err)
			return
		}
	}
}

// Wait waits for the command to end and returns how it ended. The result holds the output that nobody else has taken:
// not what Chunks delivered, and nothing of a stream that has a reader or a writer. Further calls return the same result.
func (p *Process) Wait() (*ExecResult, error) {
	p.waiting.Lock()
	defer p.waiting.Unlock()
	if !p.collected {
		p.collect()
		p.collected = true
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.how.checked(p.result, nil)
}

// collect takes the rest of the output and waits for the end.
func (p *Process) collect() {
	var kept [2]collector
	for stream := range kept {
		kept[stream].limit = p.how.limit()
	}
	p.mu.Lock()
	chunks := p.chunks
	p.mu.Unlock()
	for chunk := range chunksOrNone(chunks) { // what the channel's goroutine holds is part of the rest
		kept[streamIndex(chunk.Stream)].add(chunk.Data)
	}
	for {
		stream, data, err := p.out.next(anyone)
		if err != nil {
			break
		}
		kept[stream].add(data)
	}
	<-p.done
	if p.copied != nil {
		<-p.copied
		if p.copyErr != nil {
			p.err = p.copyErr
		}
	}
	if p.result != nil {
		p.result.Stdout, p.result.Stderr = string(kept[stdout].kept), string(kept[stderr].kept)
		p.result.Truncated = p.result.Truncated || kept[stdout].truncated || kept[stderr].truncated
	}
}

func chunksOrNone(chunks chan Chunk) <-chan Chunk {
	if chunks == nil {
		chunks = make(chan Chunk)
		close(chunks)
	}
	return chunks
}

func streamIndex(name string) int {
	if name == streamNames[stdout] {
		return stdout
	}
	return stderr
}

// Done returns a channel that is closed when the command has ended. Some of its output may still be unread.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stdin returns the command's input as an io.WriteCloser; the same as Write and CloseStdin.
func (p *Process) Stdin() io.WriteCloser { return processInput{p} }

type processInput struct{ p *Process }

func (i processInput) Write(data []byte) (int, error) { return i.p.Write(data) }
func (i processInput) Close() error                   { return i.p.CloseStdin() }

// Write gives the command input. It returns when the command has been given all of it.
func (p *Process) Write(data []byte) (int, error) {
	p.stdin.Lock()
	defer p.stdin.Unlock()
	for sent := 0; sent < len(data); {
		end := sent + inputPiece
		if end > len(data) {
			end = len(data)
		}
		if err := p.tell("input", map[string]interface{}{"data": data[sent:end]}); err != nil {
			return sent, err
		}
		sent = end
	}
	return len(data), nil
}

// CloseStdin ends the command's input. On a terminal it has the effect of Ctrl-D.
func (p *Process) CloseStdin() error {
	p.stdin.Lock()
	defer p.stdin.Unlock()
	return p.tell("input", map[string]interface{}{"end": true})
}

// feed gives the command everything that r returns. That the command ends before it has read all is not an error.
func (p *Process) feed(r io.Reader) {
	_, err := io.Copy(processInput{p}, r)
	if err == nil || p.running() {
		_ = p.CloseStdin()
	}
}

func (p *Process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the command's process group. After the command's end it returns os.ErrProcessDone.
func (p *Process) Signal(signal syscall.Signal) error {
	return p.tell("signal", map[string]interface{}{"signal": int(signal)})
}

// Kill sends SIGKILL to the command's process group.
func (p *Process) Kill() error { return p.Signal(syscall.SIGKILL) }

// Resize sets the size of the command's terminal.
func (p *Process) Resize(rows, cols int) error {
	return p.tell("resize", map[string]interface{}{"rows": rows, "cols": cols})
}

// Cancel kills the command, or leaves a kept one; Wait then returns ErrCancelled.
func (p *Process) Cancel() error { return p.tell("cancel", map[string]interface{}{}) }

// tell sends something to the command that runs.
func (p *Process) tell(method string, params map[string]interface{}) error {
	params["request"] = p.request.ID
	return p.vm.call(p.ctx, method, params, nil)
}

// Close kills the command, or leaves a kept one, and drops the output that nobody has read. It returns when the command
// has ended. After the command's end it only drops output. It always returns nil.
func (p *Process) Close() error {
	if p.running() {
		p.vm.conn.Notify("cancel", map[string]uint64{"request": p.request.ID})
	}
	p.leftOnce.Do(func() { close(p.left) })
	<-p.done
	p.abandon(ErrCancelled)
	return nil
}
