package sandbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/example/sandbox/internal/wire"
)

// Server is a `sandbox serve`, here or on another machine.
type Server struct {
	URL   string // https://HOST[:PORT]
	Token string
	// Certificates are trusted in place of the system's.
	Certificates *x509.CertPool
}

// Connect creates a sandbox on a server. It has the same methods as one that Create starts, and ends with Close, or with
// this program. A nil config is the safe default. Server has more.
func Connect(ctx context.Context, url, token string, config *Config) (*VM, error) {
	return Server{URL: url, Token: token}.Create(ctx, config)
}

// Create creates a sandbox, which ends with Close, or with this program.
func (s Server) Create(ctx context.Context, config *Config) (*VM, error) {
	return begin(ctx, config, "create", same, s.start)
}

// Restore creates a sandbox that goes on from a checkpoint of the server. It needs the scope host.
func (s Server) Restore(ctx context.Context, checkpoint string, config *Config) (*VM, error) {
	return begin(ctx, config, "restore", from(checkpoint), s.start)
}

// Attach connects to a sandbox that runs there, by its id or name. Close then leaves it running; Shutdown ends it.
func (s Server) Attach(ctx context.Context, id string) (*VM, error) {
	vm := &VM{events: newEventQueue()}
	var err error
	handlers := wire.Handlers{Event: vm.events.put, Ended: vm.events.end}
	if vm.conn, err = s.dial(ctx, "/v1/sandboxes/"+url.PathEscape(id)+"/rpc", handlers); err != nil {
		return nil, err
	}
	if err := vm.conn.Call(ctx, "info", nil, &vm.info); err != nil {
		vm.end(ctx)
		return nil, translated(err)
	}
	return vm, nil
}

func (s Server) start(ctx context.Context, _ *Config, handlers wire.Handlers) (*wire.Conn, error) {
	return s.dial(ctx, "/v1/rpc", handlers)
}

func (s Server) dial(ctx context.Context, path string, handlers wire.Handlers) (*wire.Conn, error) {
	if !strings.HasPrefix(s.URL, "https://") && !strings.HasPrefix(s.URL, "http://") {
		return nil, fmt.Errorf("the server's address is https://HOST[:PORT], not %q", s.URL)
	}
	var secure *tls.Config
	if s.Certificates != nil {
		secure = &tls.Config{RootCAs: s.Certificates}
	}
	conn, err := wire.DialServer(ctx, strings.TrimRight(s.URL, "/")+path, s.Token, secure, handlers)
	var refused *wire.Refused
	if errors.As(err, &refused) {
		return nil, ofServer(refused)
	}
	return conn, err
}

// ofServer is the error for a status of the server.
func ofServer(refused *wire.Refused) error {
	switch refused.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s: %w", refused.Message, ErrDenied)
	case http.StatusNotFound:
		return fmt.Errorf("%s: %w", refused.Message, ErrNotFound)
	case http.StatusConflict:
		return fmt.Errorf("%s: %w", refused.Message, ErrClosed)
	}
	return refused
}
