// Package wire is one JSON-RPC connection to a sandbox: it sends requests and gives each answer to the request it
// belongs to.
package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

const mostHooks = 4096 // that may be under way at once

var answerLimit = 256 << 20 // bytes of a line: the server's own limit

// ErrEnded is the error of a request whose answer can no longer come.
var ErrEnded = errors.New("the connection to the sandbox has ended")

// Error is an error response. The table in docs/rpc.md lists the codes.
type Error struct {
	Code    int                    `json:"code"`
	Message string                 `json:"message"`
	Data    map[string]interface{} `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Handlers receive what the sandbox sends unasked. Event and Ended are called by the goroutine that reads and must not
// block; each Hook call has a goroutine of its own.
type Handlers struct {
	Event func(params json.RawMessage)
	Hook  func(params json.RawMessage) (interface{}, error)
	Ended func()
	Log   io.Writer // gets the stack of a hook that panicked
}

// Handler receives the answers to one request, in order, and returns true for the last one. An error is always the
// last. It is called by the goroutine that reads and must not block.
type Handler func(result json.RawMessage, err error) (last bool)

// Conn is safe for concurrent use.
type Conn struct {
	hooks    int64 // under way; first, because 32-bit machines want it aligned
	in       io.ReadCloser
	out      *outbox
	peer     peer
	handlers Handlers

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]Handler
	ended   bool
	done    chan struct{}
	closing sync.Once
	closed  error
}

// peer is the process or socket at the other end.
type peer interface {
	hangUp()     // says that no more requests will come
	kill()       // ends the connection without the other side's help
	reap() error // gives back what the operating system holds for it
}

func newConn(in io.ReadCloser, out io.Writer, other peer, handlers Handlers) *Conn {
	c := &Conn{
		in: in, out: newOutbox(), peer: other, handlers: handlers,
		waiting: map[uint64]Handler{}, done: make(chan struct{}),
	}
	go c.out.drain(out)
	go c.read()
	return c
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Call sends one request and decodes its one answer into result, unless that is nil. When ctx ends first, Call cancels
// the request.
func (c *Conn) Call(ctx context.Context, method string, params, result interface{}) error {
	type answer struct {
		result json.RawMessage
		err    error
	}
	answered := make(chan answer, 1)
	request, err := c.Open(ctx, method, params, func(raw json.RawMessage, err error) bool {
		answered <- answer{raw, err}
		return true
	})
	if err != nil {
		return err
	}
	select {
	case got := <-answered:
		if got.err != nil || result == nil {
			return got.err
		}
		return json.Unmarshal(got.result, result)
	case <-ctx.Done():
		request.Cancel()
		return ctx.Err()
	}
}

// Open sends one request, whose answers handler receives. When ctx ends before the request is on its way, it is not sent.
func (c *Conn) Open(ctx context.Context, method string, params interface{}, handler Handler) (*Request, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if params == nil {
		params = struct{}{}
	}
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return nil, ErrEnded
	}
	c.next++
	request := &Request{ID: c.next, conn: c}
	c.waiting[request.ID] = handler
	c.mu.Unlock()
	line, err := json.Marshal(map[string]interface{}{
		"jsonrpc": "2.0", "method": method, "params": params, "id": request.ID,
	})
	if err == nil {
		err = c.out.put(ctx, line)
	}
	if err != nil {
		c.forget(request.ID)
		return nil, err
	}
	return request, nil
}

// Notify sends a request that has no answer. It does not block.
func (c *Conn) Notify(method string, params interface{}) {
	line, err := json.Marshal(map[string]interface{}{"jsonrpc": "2.0", "method": method, "params": params})
	if err == nil {
		c.out.putNow(line)
	}
}

// Close ends the connection and returns when the other side is gone. When ctx ends first, Close kills the other side.
// Only the first call does something; the others return its result.
func (c *Conn) Close(ctx context.Context) error {
	c.closing.Do(func() {
		c.out.close()
		go c.peer.hangUp() // not here: the other side may have stopped reading
		select {
		case <-c.done:
		case <-ctx.Done():
			c.closed = ctx.Err()
			c.peer.kill()
			c.in.Close() // a descendant of the process may still hold the other end
			<-c.done
		}
		if err := c.peer.reap(); c.closed == nil {
			c.closed = err
		}
	})
	return c.closed
}

// Request is a request that was sent.
type Request struct {
	ID   uint64
	conn *Conn
}

// Cancel tells the sandbox to cancel the request; its handler is not called again. It does nothing after the last
// answer, and does not block.
func (r *Request) Cancel() {
	if r.conn.forget(r.ID) {
		r.conn.Notify("cancel", map[string]uint64{"request": r.ID})
	}
}

// forget removes a request and reports whether it still waited for answers.
func (c *Conn) forget(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waited := c.waiting[id]
	delete(c.waiting, id)
	return waited
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
}

func (c *Conn) read() {
	defer close(c.done)
	lines := bufio.NewReaderSize(c.in, 1<<16)
	for {
		line, err := readLine(lines)
		if err == io.EOF {
			break
		}
		if err != nil || c.flooded() {
			c.peer.kill() // whoever still writes to it need not wait
			break
		}
		var got message
		if json.Unmarshal(line, &got) != nil {
			c.peer.kill() // the other side does not speak JSON-RPC
			break
		}
		c.dispatch(&got)
	}
	c.out.close()
	c.mu.Lock()
	c.ended = true
	waiting := c.waiting
	c.waiting = map[uint64]Handler{}
	c.mu.Unlock()
	for _, handler := range waiting {
		handler(nil, ErrEnded)
	}
	if c.handlers.Ended != nil {
		c.handlers.Ended()
	}
}

// readLine reads one line, which the other side cannot make longer than any of its own would be.
func readLine(lines *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := lines.ReadSlice('\n')
		line = append(line, piece...)
		if len(line) > answerLimit {
			return nil, errors.New("the server sent a line that is too long")
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// flooded reports whether the other side calls hooks faster than it reads their results.
func (c *Conn) flooded() bool {
	return atomic.LoadInt64(&c.hooks) >= mostHooks || c.out.full()
}

func (c *Conn) dispatch(got *message) {
	switch {
	case got.Method == "event":
		if c.handlers.Event != nil {
			c.handlers.Event(got.Params)
		}
	case got.Method == "hook":
		atomic.AddInt64(&c.hooks, 1)
		go c.hook(got)
	case got.ID != nil:
		var id uint64
		if json.Unmarshal(got.ID, &id) == nil {
			c.answer(id, got)
		}
	}
}

func (c *Conn) answer(id uint64, got *message) {
	c.mu.Lock()
	handler := c.waiting[id]
	if got.Error != nil {
		delete(c.waiting, id)
	}
	c.mu.Unlock()
	if handler == nil {
		return
	}
	if got.Error != nil {
		handler(nil, got.Error)
	} else if handler(got.Result, nil) {
		c.forget(id)
	}
}

func (c *Conn) hook(got *message) {
	defer atomic.AddInt64(&c.hooks, -1)
	result, err := c.runHook(got.Params)
	if got.ID == nil {
		return
	}
	reply := map[string]interface{}{"jsonrpc": "2.0", "id": got.ID}
	if err == nil {
		reply["result"] = result
	} else {
		reply["error"] = Error{Code: -32000, Message: err.Error()}
	}
	line, err := json.Marshal(reply)
	if err == nil {
		c.out.putNow(line)
	}
}

// runHook turns a panic into an error, which refuses: what comes from inside must not be able to end this program.
func (c *Conn) runHook(params json.RawMessage) (result interface{}, err error) {
	if c.handlers.Hook == nil {
		return nil, errors.New("this client has no hooks")
	}
	defer func() {
		if problem := recover(); problem != nil {
			if c.handlers.Log != nil {
				fmt.Fprintf(c.handlers.Log, "sandbox: a hook panicked: %v\n%s", problem, debug.Stack())
			}
			result, err = nil, errors.New("the hook panicked")
		}
	}()
	return c.handlers.Hook(params)
}
