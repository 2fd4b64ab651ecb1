package sandbox

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// HTTPHooks are called for every request to an allowed host; where there is one, TLS ends at the gate. They see
// placeholders, never secrets. Returning nil or an error (ErrBlocked, say) refuses.
type HTTPHooks struct {
	OnRequest   func(req *HTTPRequest) (*HTTPRequest, error)
	OnResponse  func(resp *HTTPResponse, req *HTTPRequest) (*HTTPResponse, error)
	OnTLSVerify func(host string, certs []*x509.Certificate) error

	// WithoutBodies leaves bodies out, so that they are streamed and not held in memory for the hooks.
	WithoutBodies bool
}

// HTTPRequest is a request on its way out.
type HTTPRequest struct {
	Method  string
	URL     *url.URL
	Headers http.Header
	Body    []byte
}

// HTTPResponse is an answer on its way in.
type HTTPResponse struct {
	StatusCode int
	Headers    http.Header
	Body       []byte
}

// VFSHooks are called around operations on provided directories. A Before that returns an error refuses.
type VFSHooks struct {
	BeforeOpen func(path string, flags int) error
	AfterWrite func(path string, n int)
}

func (c *Config) hooks() map[string]interface{} {
	http, files := c.Network.Hooks, c.VFS.Hooks
	named := map[string]interface{}{}
	bodies := map[string]bool{"body": !http.WithoutBodies}
	put(named, "on_request", bodies, http.OnRequest != nil)
	put(named, "on_response", bodies, http.OnResponse != nil)
	put(named, "on_tls_verify", struct{}{}, http.OnTLSVerify != nil)
	put(named, "before_open", struct{}{}, files.BeforeOpen != nil)
	put(named, "after_write", struct{}{}, files.AfterWrite != nil)
	return named
}

type wireMessage struct {
	Method  string      `json:"method,omitempty"`
	URL     string      `json:"url,omitempty"`
	Status  int         `json:"status,omitempty"`
	Headers [][2]string `json:"headers"`
	Body    []byte      `json:"body,omitempty"`
}

type hookCall struct {
	Name         string            `json:"name"`
	Request      *wireMessage      `json:"request"`
	Response     *wireMessage      `json:"response"`
	Host         string            `json:"host"`
	Certificates [][]byte          `json:"certificates"`
	Args         []json.RawMessage `json:"args"`
}

// hook answers one call of the sandbox's: the message, changed or not, or why it is refused.
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
	switch call.Name {
	case "on_request":
		req, err := readRequest(call.Request)
		if err != nil {
			return nil, err
		}
		changed, err := c.Network.Hooks.OnRequest(req)
		if err != nil || changed == nil {
			return nil, orBlocked(err)
		}
		return map[string]interface{}{"request": wireMessage{
			Method: changed.Method, URL: changed.URL.String(), Headers: pairs(changed.Headers), Body: changed.Body,
		}}, nil
	case "on_response":
		req, err := readRequest(call.Request)
		if err != nil {
			return nil, err
		}
		resp := &HTTPResponse{call.Response.Status, header(call.Response.Headers), call.Response.Body}
		changed, err := c.Network.Hooks.OnResponse(resp, req)
		if err != nil || changed == nil {
			return nil, orBlocked(err)
		}
		return map[string]interface{}{"response": wireMessage{
			Status: changed.StatusCode, Headers: pairs(changed.Headers), Body: changed.Body,
		}}, nil
	case "on_tls_verify":
		var certs []*x509.Certificate
		for _, der := range call.Certificates {
			cert, err := x509.ParseCertificate(der)
			if err != nil {
				return nil, err
			}
			certs = append(certs, cert)
		}
		return struct{}{}, c.Network.Hooks.OnTLSVerify(call.Host, certs)
	case "before_open":
		path, flags, err := pathAndNumber(call.Args)
		if err != nil {
			return nil, err
		}
		return struct{}{}, c.VFS.Hooks.BeforeOpen(path, flags)
	case "after_write":
		path, n, err := pathAndNumber(call.Args)
		if err != nil {
			return nil, err
		}
		c.VFS.Hooks.AfterWrite(path, n)
		return struct{}{}, nil
	}
	return nil, fmt.Errorf("no hook %q", call.Name)
}

func readRequest(m *wireMessage) (*HTTPRequest, error) {
	if m == nil {
		return nil, fmt.Errorf("a hook was called without its request")
	}
	parsed, err := url.Parse(m.URL)
	if err != nil {
		return nil, err
	}
	return &HTTPRequest{m.Method, parsed, header(m.Headers), m.Body}, nil
}

func header(fields [][2]string) http.Header {
	made := http.Header{}
	for _, field := range fields {
		made.Add(field[0], field[1])
	}
	return made
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

func pathAndNumber(args []json.RawMessage) (path string, number int, err error) {
	if len(args) < 2 {
		return "", 0, fmt.Errorf("a hook was called with %d arguments", len(args))
	}
	if err = json.Unmarshal(args[0], &path); err == nil {
		err = json.Unmarshal(args[1], &number)
	}
	return path, number, err
}

func orBlocked(err error) error {
	if err == nil {
		return ErrBlocked
	}
	return err
}
