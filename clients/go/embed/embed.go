// Package embed is package sandbox with hooks on net/http's own request type.
//
// The walls, the gate and the record live in the `sandbox` process in any case: there is nothing to embed but the hooks,
// which run in this process as they do in package sandbox.
package embed

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/example/sandbox"
)

// The rest is package sandbox's own.
type (
	VM          = sandbox.VM
	Resources   = sandbox.Resources
	Secret      = sandbox.Secret
	VFSConfig   = sandbox.VFSConfig
	DirectMount = sandbox.DirectMount
	Provider    = sandbox.Provider
	ExecResult  = sandbox.ExecResult
)

// Config is sandbox.Config with this package's hooks.
type Config struct {
	Image     string
	Resources Resources
	Network   NetworkConfig
	VFS       VFSConfig
	Env       map[string]string
	Settings  map[string]interface{}
}

// NetworkConfig is sandbox.NetworkConfig with this package's hooks.
type NetworkConfig struct {
	AllowedHosts    []string
	AllowPrivateIPs bool
	Secrets         map[string]Secret
	Hooks           HTTPHooks
}

// HTTPHooks see requests as net/http has them.
type HTTPHooks struct {
	OnRequest func(req *http.Request) (*http.Request, error)
}

// Create starts a sandbox; it ends with Close, or with this process.
func Create(ctx context.Context, config *Config) (*VM, error) {
	return sandbox.Create(ctx, &sandbox.Config{
		Image: config.Image, Resources: config.Resources, VFS: config.VFS, Env: config.Env, Settings: config.Settings,
		Network: sandbox.NetworkConfig{
			AllowedHosts: config.Network.AllowedHosts, AllowPrivateIPs: config.Network.AllowPrivateIPs,
			Secrets: config.Network.Secrets, Hooks: hooks(config.Network.Hooks),
		},
	})
}

func hooks(own HTTPHooks) sandbox.HTTPHooks {
	if own.OnRequest == nil {
		return sandbox.HTTPHooks{}
	}
	return sandbox.HTTPHooks{OnRequest: func(req *sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) {
		given := &http.Request{
			Method: req.Method, URL: req.URL, Header: req.Headers, Host: req.URL.Host,
			Body: io.NopCloser(bytes.NewReader(req.Body)), ContentLength: int64(len(req.Body)),
		}
		changed, err := own.OnRequest(given)
		if err != nil || changed == nil {
			return nil, err
		}
		body, err := io.ReadAll(changed.Body)
		if err != nil {
			return nil, err
		}
		return &sandbox.HTTPRequest{Method: changed.Method, URL: changed.URL, Headers: changed.Header, Body: body}, nil
	}}
}
