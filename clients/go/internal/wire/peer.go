package wire

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
)

// Start runs `sandbox --rpc` (or another command that speaks the same protocol) for this connection alone.
func Start(command []string, stderr io.Writer, handlers Handlers) (*Conn, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = stderr
	detach(cmd)
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
	return newConn(stdout, stdin, &child{cmd, stdin}, handlers), nil
}

type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func (c *child) hangUp()     { c.stdin.Close() } // the server then closes the sandbox and exits
func (c *child) kill()       { _ = c.cmd.Process.Kill() }
func (c *child) reap() error { return c.cmd.Wait() }

// Dial connects to the socket of a running sandbox.
func Dial(ctx context.Context, path string, handlers Handlers) (*Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return newConn(conn, conn, socket{conn}, handlers), nil
}

type socket struct{ conn net.Conn }

func (s socket) hangUp()     { s.conn.Close() }
func (s socket) kill()       { s.conn.Close() }
func (s socket) reap() error { return nil }
