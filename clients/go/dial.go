package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/example/sandbox/internal/wire"
)

// Dial connects to a TCP port on which a command inside listens. The network is "tcp"; the host in address is an IP
// address inside, "localhost" or empty. The context limits the time to connect, not the life of the connection.
//
// Dial can be the DialContext of an http.Transport.
func (vm *VM) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	remote, err := insideAddress(network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c := &conn{
		vm: vm, remote: remote, connected: make(chan struct{}), ended: make(chan struct{}), closed: make(chan struct{}),
		reads: newDeadline(), writes: newDeadline(),
	}
	c.in = &output{grant: func(bytes int) {
		vm.conn.Notify("more", map[string]interface{}{"request": c.request.ID, "bytes": bytes})
	}}
	params := map[string]interface{}{"port": remote.Port, "address": remote.IP.String(), "credit": window}
	if c.request, err = vm.conn.Open(ctx, "dial", params, c.answer); err == nil {
		select {
		case <-c.connected:
			return c, nil
		case <-c.ended:
			err = c.err
		case <-ctx.Done():
			c.request.Cancel()
			err = ctx.Err()
		}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: remote, Err: translated(err)}
}

func insideAddress(network, address string) (*net.TCPAddr, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, net.UnknownNetworkError(network)
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return nil, &net.AddrError{Err: "invalid port", Addr: address}
	}
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return nil, &net.AddrError{Err: "not an IP address inside the sandbox", Addr: address}
	}
	return &net.TCPAddr{IP: ip, Port: int(port)}, nil
}

// conn is a connection into the sandbox.
type conn struct {
	vm      *VM
	request *wire.Request
	remote  *net.TCPAddr
	in      *output

	connected   chan struct{}
	connectOnce sync.Once
	ended       chan struct{} // closed when no more answers come; err says why
	endOnce     sync.Once
	err         error

	reads, writes *deadline
	writing       sync.Mutex
	closing       sync.Once
	closed        chan struct{}
}

func (c *conn) answer(raw json.RawMessage, err error) (last bool) {
	var got struct {
		Data []byte `json:"data"`
		EOF  bool   `json:"eof"` // the other side has sent everything, and may still read
		End  bool   `json:"end"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &got)
	}
	if err == nil && got.End {
		err = io.EOF
	}
	if err != nil {
		c.finish(translated(err))
		return true
	}
	c.connectOnce.Do(func() { close(c.connected) })
	c.in.put(stdout, got.Data)
	if got.EOF {
		c.in.end(io.EOF, false)
	}
	return false
}

func (c *conn) finish(err error) {
	c.endOnce.Do(func() {
		c.err = err
		c.in.end(err, false)
		close(c.ended)
	})
}

func (c *conn) Read(buffer []byte) (int, error) {
	n, err := c.in.read(stdout, buffer, c.reads.expired())
	return n, c.opError("read", err)
}

func (c *conn) Write(data []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for sent := 0; sent < len(data); {
		end := sent + inputPiece
		if end > len(data) {
			end = len(data)
		}
		if err := c.send(map[string]interface{}{"data": data[sent:end]}); err != nil {
			return sent, c.opError("write", err)
		}
		sent = end
	}
	return len(data), nil
}

// CloseWrite tells the other side that no more data comes, as of a *net.TCPConn.
func (c *conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.opError("close", c.send(map[string]interface{}{"end": true}))
}

func (c *conn) send(params map[string]interface{}) error {
	ctx, cancel := c.writes.context()
	defer cancel()
	params["request"] = c.request.ID
	err := c.vm.call(ctx, "input", params, nil)
	select {
	case <-c.closed:
		return net.ErrClosed
	default:
	}
	if err == context.Canceled {
		return os.ErrDeadlineExceeded
	}
	return err
}

func (c *conn) Close() error {
	err := error(&net.OpError{Op: "close", Net: "tcp", Addr: c.remote, Err: net.ErrClosed})
	c.closing.Do(func() {
		close(c.closed)
		c.request.Cancel()
		c.finish(net.ErrClosed)
		c.in.end(net.ErrClosed, true)
		c.writes.set(time.Unix(1, 0)) // a Write that waits returns
		err = nil
	})
	return err
}

func (c *conn) LocalAddr() net.Addr                { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (c *conn) RemoteAddr() net.Addr               { return c.remote }
func (c *conn) SetReadDeadline(at time.Time) error { c.reads.set(at); return nil }

func (c *conn) SetWriteDeadline(at time.Time) error { c.writes.set(at); return nil }

func (c *conn) SetDeadline(at time.Time) error {
	c.reads.set(at)
	c.writes.set(at)
	return nil
}

func (c *conn) opError(operation string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: operation, Net: "tcp", Addr: c.remote, Err: err}
}

// deadline is a channel that is closed at a time that can be changed.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed chan struct{}
}

func newDeadline() *deadline { return &deadline{passed: make(chan struct{})} }

func (d *deadline) expired() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

// set changes the time; zero means never. A wait that began before keeps the channel it has, which set closes when the
// new time has passed already.
func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.passed:
		d.passed = make(chan struct{})
	default:
	}
	if at.IsZero() {
		return
	}
	wait := time.Until(at)
	if wait <= 0 {
		close(d.passed)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // and no later set took its place
			d.timer = nil
			close(d.passed)
		}
	})
	d.timer = timer
}

// context returns a context that is cancelled when the deadline passes.
func (d *deadline) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	expired := d.expired()
	select {
	case <-expired:
		cancel()
		return ctx, cancel
	default:
	}
	go func() {
		select {
		case <-expired:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
