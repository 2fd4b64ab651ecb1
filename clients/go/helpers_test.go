package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/example/sandbox"
)

var background = context.Background()

// create starts a sandbox with an empty project of its own.
func create(t *testing.T, config *sandbox.Config) *sandbox.VM {
	t.Helper()
	var own sandbox.Config
	if config != nil {
		own = *config
	}
	if own.Filesystem.Root == "" {
		own.Filesystem.Root = t.TempDir()
	}
	vm, err := sandbox.Create(background, &own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vm.Close() })
	return vm
}

// run runs a command that must succeed.
func run(t *testing.T, vm *sandbox.VM, command string) string {
	t.Helper()
	result, err := vm.Exec(background, command, sandbox.WithCheck())
	if err != nil {
		t.Fatalf("%s: %v (%+v)", command, err, result)
	}
	return result.Stdout
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); runtime.Gosched() {
		if holds() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// children counts the processes that this one started and that are still there.
func children(t *testing.T) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("needs /proc")
	}
	count := 0
	for _, name := range stats {
		content, err := os.ReadFile(name)
		if err != nil {
			continue // it ended just now
		}
		var state string
		var parent int
		behind := string(content[strings.LastIndexByte(string(content), ')')+1:])
		if _, err := fmt.Sscan(behind, &state, &parent); err == nil && parent == os.Getpid() {
			count++
		}
	}
	return count
}

// leavesNothing runs something and checks that no goroutine and no process is left of it.
func leavesNothing(t *testing.T, what func()) {
	t.Helper()
	goroutines, processes := runtime.NumGoroutine(), children(t)
	what()
	eventually(t, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "as many processes as before", func() bool { return children(t) <= processes })
}

// origin is a server on loopback that every name leads to: the sandbox reaches it as through a proxy with CONNECT.
func origin(t *testing.T, handler http.HandlerFunc) (config map[string]interface{}) {
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
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		serve(conn, handler)
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
	resp.Write(conn)
}

func needsFUSE(t *testing.T) {
	t.Helper()
	file, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs /dev/fuse: ", err)
	}
	file.Close()
}
