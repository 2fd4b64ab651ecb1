// Package wire is one JSON-RPC conversation with a sandbox: requests out, answers sorted to whoever waits.
package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
)

// ErrEnded is what a request hears whose answer can no longer come.
var ErrEnded = errors.New("the connection to the sandbox has ended")

// Error is an error response. The codes are in the table of docs/rpc.md.
type Error struct {
	Code    int                    `json:"code"`
	Message string                 `json:"message"`
	Data    map[string]interface{} `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Handlers are called from the reading goroutine (Event) or one of their own (Hook).
type Handlers struct {
	Event func(params json.RawMessage)
	Hook  func(params json.RawMessage) (interface{}, error)
	Ended func()
}

// Conn is safe to use from many goroutines.
type Conn struct {
	in       io.Reader
	out      io.Writer
	finish   func() error
	handlers Handlers

	writing sync.Mutex
	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*Stream
	ended   bool
	done    chan struct{}
	closing sync.Once
	closed  error
}

// Start runs `sandbox --rpc` (or another command that speaks the same) for this conversation alone.
func Start(command []string, handlers Handlers) (*Conn, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", command[0], err)
	}
	conn := newConn(stdout, stdin, handlers)
	conn.finish = func() error {
		stdin.Close() // the server's end: it closes the sandbox and exits
		<-conn.done   // Wait would close the pipe under the reader
		return cmd.Wait()
	}
	go conn.read()
	return conn, nil
}

// Dial talks to the socket of a sandbox that runs already.
func Dial(path string, handlers Handlers) (*Conn, error) {
	socket, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	conn := newConn(socket, socket, handlers)
	conn.finish = socket.Close
	go conn.read()
	return conn, nil
}

func newConn(in io.Reader, out io.Writer, handlers Handlers) *Conn {
	return &Conn{in: in, out: out, handlers: handlers, waiting: map[uint64]*Stream{}, done: make(chan struct{})}
}

// Call makes one request and reads its one answer into result (nil: it does not matter).
func (c *Conn) Call(ctx context.Context, method string, params, result interface{}) error {
	stream, err := c.Stream(method, params)
	if err != nil {
		return err
	}
	defer stream.Close()
	raw, err := stream.Next(ctx)
	if err != nil {
		return err
	}
	stream.Finish()
	if result == nil {
		return nil
	}
	return json.Unmarshal(raw, result)
}

// Stream makes one request that has several answers.
func (c *Conn) Stream(method string, params interface{}) (*Stream, error) {
	if params == nil {
		params = struct{}{}
	}
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return nil, ErrEnded
	}
	c.next++
	stream := &Stream{ID: c.next, conn: c, wake: make(chan struct{}, 1)}
	c.waiting[stream.ID] = stream
	c.mu.Unlock()
	err := c.send(map[string]interface{}{"jsonrpc": "2.0", "method": method, "params": params, "id": stream.ID})
	if err != nil {
		stream.Finish()
		return nil, err
	}
	return stream, nil
}

// Close ends the conversation and returns when the other side is gone. Harmless to repeat.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		c.closed = c.finish()
		<-c.done
	})
	return c.closed
}

func (c *Conn) send(message map[string]interface{}) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.out.Write(append(line, '\n')); err != nil {
		return ErrEnded
	}
	return nil
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
	lines := bufio.NewReaderSize(c.in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var got message
		if json.Unmarshal(line, &got) != nil {
			break // whoever speaks there does not speak JSON-RPC
		}
		c.sort(got)
	}
	c.mu.Lock()
	c.ended = true
	waiting := c.waiting
	c.waiting = map[uint64]*Stream{}
	c.mu.Unlock()
	for _, stream := range waiting {
		stream.put(answer{err: ErrEnded})
	}
	if c.handlers.Ended != nil {
		c.handlers.Ended()
	}
}

func (c *Conn) sort(got message) {
	switch {
	case got.Method == "event":
		if c.handlers.Event != nil {
			c.handlers.Event(got.Params)
		}
	case got.Method == "hook":
		go c.hook(got)
	case got.ID != nil:
		var id uint64
		if json.Unmarshal(got.ID, &id) != nil {
			return
		}
		c.mu.Lock()
		stream := c.waiting[id]
		c.mu.Unlock()
		if stream == nil {
			return
		}
		if got.Error != nil {
			stream.put(answer{err: got.Error})
		} else {
			stream.put(answer{result: got.Result})
		}
	}
}

func (c *Conn) hook(got message) {
	var result interface{}
	err := errors.New("this client has no hooks")
	if c.handlers.Hook != nil {
		result, err = c.handlers.Hook(got.Params)
	}
	if got.ID == nil {
		return
	}
	reply := map[string]interface{}{"jsonrpc": "2.0", "id": got.ID, "result": result}
	if err != nil {
		delete(reply, "result")
		reply["error"] = Error{Code: -32000, Message: err.Error()}
	}
	_ = c.send(reply) // when nobody hears it any more, nobody waits for it either
}

type answer struct {
	result json.RawMessage
	err    error
}

// Stream is the answers to one request, in order. They are queued without limit here: one that is read slowly must
// not hold up the others of the conversation.
type Stream struct {
	ID   uint64
	conn *Conn

	mu       sync.Mutex
	queue    []answer
	finished bool
	wake     chan struct{}
}

// Next waits for the next answer. When ctx ends first, what the request runs is cancelled.
func (s *Stream) Next(ctx context.Context) (json.RawMessage, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			first := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			if first.err != nil {
				s.Finish()
			}
			return first.result, first.err
		}
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			s.Close()
			return nil, ctx.Err()
		}
	}
}

// Finish says that the last answer has come.
func (s *Stream) Finish() {
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
	s.conn.mu.Lock()
	delete(s.conn.waiting, s.ID)
	s.conn.mu.Unlock()
}

// Close leaves: what the request still runs is cancelled.
func (s *Stream) Close() {
	s.mu.Lock()
	finished := s.finished
	s.mu.Unlock()
	if finished {
		return
	}
	s.Finish()
	_ = s.conn.send(map[string]interface{}{
		"jsonrpc": "2.0", "method": "cancel", "params": map[string]uint64{"request": s.ID},
	})
}

func (s *Stream) put(one answer) {
	s.mu.Lock()
	s.queue = append(s.queue, one)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
