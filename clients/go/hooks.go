package sandbox

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

// HTTPHooks are called for every request to an allowed host. Where there is one, the gate decrypts TLS. Hooks see
// placeholders, never secrets. A hook refuses by returning an error, such as ErrBlocked, or nil; a hook that panics or
// does not return within 30 seconds refuses as well. Hooks are called concurrently.
type HTTPHooks struct {
	OnRequest   func(req *HTTPRequest) (*HTTPRequest, error)
	OnResponse  func(resp *HTTPResponse, req *HTTPRequest) (*HTTPResponse, error)
	OnTLSVerify func(host string, certs []*x509.Certificate) error

	// OnAsk answers a question to the owner (the network setting "ask", docs/asks.md) with AllowOnce, AllowSandbox,
	// AllowAlways or Deny; "" leaves it to others. An error, a panic, or silence for the question's Timeout denies. It
	// does not make the gate decrypt anything.
	OnAsk func(ask *Ask) (string, error)

	// WithoutBodies does not show bodies to the hooks, so that they are streamed and not held in memory. A hook can
	// still replace a body: a Body that is nil leaves it as it is, any other replaces it.
	WithoutBodies bool
}

// HTTPRequest is a request from the sandbox. What a hook changes in it, the server at URL receives: also an empty Body.
// The request that OnResponse sees has no Body.
type HTTPRequest struct {
	Method  string
	URL     *url.URL
	Headers http.Header
	Body    []byte
}

// HTTPResponse is the answer to a request. What a hook changes in it, the sandbox receives: also an empty Body.
type HTTPResponse struct {
	StatusCode int
	Headers    http.Header
	Body       []byte
}

// hooks returns what `create` is told: which hooks there are.
func (c *Config) hooks() map[string]interface{} {
	own := c.Network.Hooks
	named := map[string]interface{}{}
	bodies := map[string]bool{"body": !own.WithoutBodies}
	put(named, "on_request", bodies, own.OnRequest != nil)
	put(named, "on_response", bodies, own.OnResponse != nil)
	put(named, "on_tls_verify", struct{}{}, own.OnTLSVerify != nil)
	put(named, "on_ask", struct{}{}, own.OnAsk != nil)
	for name, hook := range c.VFS.Hooks.table() {
		put(named, name, struct{}{}, hook != nil)
	}
	return named
}

type wireMessage struct {
	Method  string      `json:"method"`
	URL     string      `json:"url"`
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers"`
	Body    []byte      `json:"body"`
}

type hookCall struct {
	Name         string            `json:"name"`
	Request      *wireMessage      `json:"request"`
	Response     *wireMessage      `json:"response"`
	Host         string            `json:"host"`
	Certificates [][]byte          `json:"certificates"`
	Args         []json.RawMessage `json:"args"`
	Ask          *Ask              `json:"ask"`
}

// hook answers one call of a hook: with what it changed, or with the reason why it refuses.
func (c *Config) hook(params json.RawMessage) (interface{}, error) {
	var call hookCall
	if err := json.Unmarshal(params, &call); err != nil {
		return nil, err
	}
	answer, err := c.answer(&call)
	if err != nil {
		return map[string]string{"blocked": err.Error()}, nil
	}
	return answer, nil
}

func (c *Config) answer(call *hookCall) (interface{}, error) {
	own := c.Network.Hooks
	switch {
	case call.Name == "on_request" && own.OnRequest != nil:
		return own.onRequest(call)
	case call.Name == "on_response" && own.OnResponse != nil:
		return own.onResponse(call)
	case call.Name == "on_tls_verify" && own.OnTLSVerify != nil:
		return struct{}{}, own.onTLSVerify(call)
	case call.Name == "on_ask" && own.OnAsk != nil && call.Ask != nil:
		answer, err := own.OnAsk(call.Ask)
		if err != nil || answer == "" {
			return struct{}{}, err
		}
		return map[string]string{"answer": answer}, nil
	}
	if hook := c.VFS.Hooks.table()[call.Name]; hook != nil {
		return struct{}{}, hook(call.Args)
	}
	return nil, fmt.Errorf("there is no hook %q", call.Name)
}

func (h *HTTPHooks) onRequest(call *hookCall) (interface{}, error) {
	req, err := readRequest(call.Request)
	if err != nil {
		return nil, err
	}
	before := *req
	before.Headers, before.URL = req.Headers.Clone(), cloneURL(req.URL)
	after, err := h.OnRequest(req)
	if err != nil || after == nil {
		return nil, orBlocked(err)
	}
	if after.URL == nil || after.Method == "" {
		return nil, errors.New("the hook returned a request without a method or URL")
	}
	changed := map[string]interface{}{}
	put(changed, "method", after.Method, after.Method != before.Method)
	put(changed, "url", after.URL.String(), after.URL.String() != before.URL.String())
	h.putMessage(changed, before.Headers, after.Headers, after.Body)
	return map[string]interface{}{"request": changed}, nil
}

func (h *HTTPHooks) onResponse(call *hookCall) (interface{}, error) {
	req, err := readRequest(call.Request)
	if err != nil {
		return nil, err
	}
	if call.Response == nil {
		return nil, errors.New("the sandbox called a hook without its response")
	}
	resp := &HTTPResponse{call.Response.Status, header(call.Response.Headers), call.Response.Body}
	status, headers := resp.StatusCode, resp.Headers.Clone()
	after, err := h.OnResponse(resp, req)
	if err != nil || after == nil {
		return nil, orBlocked(err)
	}
	if after.StatusCode == 0 {
		return nil, errors.New("the hook returned a response without a status code")
	}
	changed := map[string]interface{}{}
	put(changed, "status", after.StatusCode, after.StatusCode != status)
	h.putMessage(changed, headers, after.Headers, after.Body)
	return map[string]interface{}{"response": changed}, nil
}

// putMessage adds what both kinds of message have. A key that is there replaces, even with nothing; so a body that the
// hook was shown is always there.
func (h *HTTPHooks) putMessage(changed map[string]interface{}, before, after http.Header, body []byte) {
	put(changed, "headers", pairs(after), !sameHeaders(before, after))
	if body == nil && !h.WithoutBodies {
		body = []byte{}
	}
	put(changed, "body", body, body != nil)
}

func (h *HTTPHooks) onTLSVerify(call *hookCall) error {
	var certs []*x509.Certificate
	for _, der := range call.Certificates {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		certs = append(certs, cert)
	}
	return h.OnTLSVerify(call.Host, certs)
}

func readRequest(m *wireMessage) (*HTTPRequest, error) {
	if m == nil {
		return nil, errors.New("the sandbox called a hook without its request")
	}
	parsed, err := url.Parse(m.URL)
	if err != nil {
		return nil, err
	}
	return &HTTPRequest{m.Method, parsed, header(m.Headers), m.Body}, nil
}

func cloneURL(original *url.URL) *url.URL {
	clone := *original
	return &clone
}

func header(fields [][2]string) http.Header {
	made := http.Header{}
	for _, field := range fields {
		made.Add(field[0], field[1])
	}
	return made
}

func sameHeaders(one, other http.Header) bool {
	return len(one) == len(other) && (len(one) == 0 || reflect.DeepEqual(one, other))
}

func pairs(headers http.Header) [][2]string {
	made := [][2]string{}
	for name, values := range headers {
		for _, value := range values {
			made = append(made, [2]string{name, value})
		}
	}
	return made
}

func orBlocked(err error) error {
	if err == nil {
		return ErrBlocked
	}
	if strings.TrimSpace(err.Error()) == "" {
		return ErrBlocked // a refusal has a reason
	}
	return err
}
