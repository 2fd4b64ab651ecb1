// Package embed is package sandbox with hooks that take the request and response types of net/http.
//
// The isolation, the gate and the audit log are in the `sandbox` process here as well; only the hooks run in this one.
package embed

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"

	"github.com/example/sandbox"
)

// These types are the same as in package sandbox.
type (
	VM               = sandbox.VM
	Resources        = sandbox.Resources
	FilesystemConfig = sandbox.FilesystemConfig
	Secret           = sandbox.Secret
	VFSConfig        = sandbox.VFSConfig
	VFSHooks         = sandbox.VFSHooks
	DirectMount      = sandbox.DirectMount
	Provider         = sandbox.Provider
	ExecResult       = sandbox.ExecResult
)

// Config is sandbox.Config with the hooks of this package.
type Config struct {
	Image         string
	Resources     Resources
	Filesystem    FilesystemConfig
	Network       NetworkConfig
	VFS           VFSConfig
	Env           map[string]string
	PolicyScript  string
	PolicySecrets map[string]string
	Settings      map[string]interface{}
	Stderr        io.Writer
}

// NetworkConfig is sandbox.NetworkConfig with the hooks of this package.
type NetworkConfig struct {
	AllowedHosts    []string
	BlockPrivateIPs bool
	AllowPrivateIPs bool
	Secrets         map[string]Secret
	Publish         []string
	Hooks           HTTPHooks
}

// HTTPHooks are those of package sandbox, with the types of net/http. A hook may return the message it was given, changed
// or not, or a new one; one without a body has an empty body. A request goes where its URL says; its Host is ignored.
// Returning nil or an error refuses.
type HTTPHooks struct {
	OnRequest   func(req *http.Request) (*http.Request, error)
	OnResponse  func(resp *http.Response) (*http.Response, error) // resp.Request is the request, without a body
	OnTLSVerify func(host string, certs []*x509.Certificate) error
	OnAsk       func(ask *sandbox.Ask) (string, error) // as in sandbox.HTTPHooks
}

// Create starts a sandbox. It ends with Close, or with this program. A nil config is the safe default.
func Create(ctx context.Context, config *Config) (*VM, error) {
	if config == nil {
		config = &Config{}
	}
	n := config.Network
	return sandbox.Create(ctx, &sandbox.Config{
		Image: config.Image, Resources: config.Resources, Filesystem: config.Filesystem, VFS: config.VFS, Env: config.Env,
		PolicyScript: config.PolicyScript, PolicySecrets: config.PolicySecrets, Settings: config.Settings,
		Stderr: config.Stderr,
		Network: sandbox.NetworkConfig{
			AllowedHosts: n.AllowedHosts, BlockPrivateIPs: n.BlockPrivateIPs, AllowPrivateIPs: n.AllowPrivateIPs,
			Secrets: n.Secrets, Publish: n.Publish, Hooks: n.Hooks.translated(),
		},
	})
}

func (h HTTPHooks) translated() sandbox.HTTPHooks {
	made := sandbox.HTTPHooks{OnTLSVerify: h.OnTLSVerify, OnAsk: h.OnAsk}
	if h.OnRequest != nil {
		made.OnRequest = h.onRequest
	}
	if h.OnResponse != nil {
		made.OnResponse = h.onResponse
	}
	return made
}

func (h HTTPHooks) onRequest(req *sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) {
	changed, err := h.OnRequest(request(req))
	if err != nil || changed == nil {
		return nil, err
	}
	if changed.URL == nil {
		return nil, errors.New("the hook returned a request without a URL")
	}
	body, err := content(changed.Body)
	if err != nil {
		return nil, err
	}
	method := changed.Method
	if method == "" {
		method = http.MethodGet // as net/http has it
	}
	return &sandbox.HTTPRequest{Method: method, URL: changed.URL, Headers: changed.Header, Body: body}, nil
}

func (h HTTPHooks) onResponse(resp *sandbox.HTTPResponse, req *sandbox.HTTPRequest) (*sandbox.HTTPResponse, error) {
	given := &http.Response{
		Status: http.StatusText(resp.StatusCode), StatusCode: resp.StatusCode, Header: resp.Headers, Request: request(req),
		Body: io.NopCloser(bytes.NewReader(resp.Body)), ContentLength: int64(len(resp.Body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	changed, err := h.OnResponse(given)
	if err != nil || changed == nil {
		return nil, err
	}
	body, err := content(changed.Body)
	if err != nil {
		return nil, err
	}
	return &sandbox.HTTPResponse{StatusCode: changed.StatusCode, Headers: changed.Header, Body: body}, nil
}

func request(req *sandbox.HTTPRequest) *http.Request {
	made := &http.Request{
		Method: req.Method, URL: req.URL, Header: req.Headers, Host: req.URL.Host, Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if len(req.Body) > 0 {
		made.Body, made.ContentLength = io.NopCloser(bytes.NewReader(req.Body)), int64(len(req.Body))
	}
	return made
}

// content reads a body; nil, which net/http allows, is an empty one.
func content(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return []byte{}, nil
	}
	defer body.Close()
	return io.ReadAll(body)
}
