// Package loopback is a server for tests that sandboxes reach by any name, without leaving this machine.
package loopback

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Origin starts a server that ends with the test, and returns the settings of a sandbox for which every name leads there:
// the gate takes it for a proxy.
func Origin(t testing.TB, handler http.HandlerFunc) map[string]interface{} {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
			serve(conn, handler)
		}
	}))
	t.Cleanup(proxy.Close)
	return map[string]interface{}{"network": map[string]interface{}{"upstream_proxy": proxy.URL}}
}

// serve answers one request.
func serve(conn net.Conn, handler http.HandlerFunc) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	recorded := httptest.NewRecorder()
	handler(recorded, req)
	resp := recorded.Result()
	resp.Close = true
	resp.ContentLength = int64(recorded.Body.Len())
	_ = resp.Write(conn)
}
