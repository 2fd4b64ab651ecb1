package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/example/sandbox"
	"github.com/example/sandbox/internal/loopback"
	"github.com/example/sandbox/state"
)

// server is a program inside that answers each line with the same line in capitals, until the end of its input.
const server = `
import socket, threading
listener = socket.create_server(("127.0.0.1", 7000))
print("ready", flush=True)
def serve(line):
    with line, line.makefile("rb") as lines:
        for one in lines:
            line.sendall(one.upper())
        line.sendall(b"END\n")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
`

func listening(t *testing.T, config *sandbox.Config) *sandbox.VM {
	t.Helper()
	vm := create(t, config)
	process, err := vm.Start(background, "", sandbox.WithArgs("/usr/bin/python3", "-c", server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Close() })
	if line, err := bufio.NewReader(process.Stdout()).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q: %v", line, err)
	}
	return vm
}

func TestAConnectionInwardsIsANetConn(t *testing.T) {
	vm := listening(t, nil)
	leavesNothing(t, func() {
		conn, err := vm.Dial(background, "tcp", "localhost:7000")
		if err != nil {
			t.Fatal(err)
		}
		large := strings.Repeat("0123456789abcde\n", 1<<17) // 2 MiB, there and back
		go func() {
			io.WriteString(conn, "hello\n"+large)
			conn.(interface{ CloseWrite() error }).CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != "HELLO\n"+strings.ToUpper(large)+"END\n" {
			t.Errorf("%d bytes: %v", len(got), err)
		}
		if conn.RemoteAddr().String() != "127.0.0.1:7000" {
			t.Errorf("%v", conn.RemoteAddr())
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read after Close: %v", err)
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write after Close: %v", err)
		}
	})
}

func TestAPortThatHasSentEverythingCanStillBeWrittenTo(t *testing.T) {
	vm := create(t, nil)
	const server = `python3 -c '
import socket
listener = socket.create_server(("127.0.0.1", 5006))
print("up", flush=True)
line, _ = listener.accept()
line.sendall(b"all of it")
line.shutdown(socket.SHUT_WR)
print("heard", b"".join(iter(lambda: line.recv(65536), b"")).decode(), flush=True)
'`
	process, err := vm.Start(background, server)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	<-process.Chunks()
	leavesNothing(t, func() {
		conn, err := vm.Dial(background, "tcp", "localhost:5006")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "all of it" {
			t.Errorf("%q: %v", got, err)
		}
		if _, err := io.WriteString(conn, "thanks"); err != nil {
			t.Error(err)
		}
		if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Error(err)
		}
		var heard []byte
		for chunk := range process.Chunks() {
			heard = append(heard, chunk.Data...)
		}
		if !strings.HasSuffix(string(heard), "heard thanks\n") {
			t.Errorf("%q", heard)
		}
	})
}

func TestAConnectionInwardsHasDeadlines(t *testing.T) {
	vm := listening(t, nil)
	conn, err := vm.Dial(background, "tcp", "127.0.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v", err)
	}
	conn.SetDeadline(time.Now().Add(-time.Second))
	if _, err := conn.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	conn.SetDeadline(time.Time{})
	io.WriteString(conn, "later\n")
	line := make([]byte, 6)
	if _, err := io.ReadFull(conn, line); err != nil || string(line) != "LATER\n" {
		t.Errorf("%q: %v", line, err)
	}
	waiting := make(chan error)
	go func() {
		_, err := conn.Read(line)
		waiting <- err
	}()
	conn.Close()
	if err := <-waiting; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read that waits: %v", err)
	}
}

func TestAnHTTPClientCanDialInwards(t *testing.T) {
	vm := create(t, nil)
	if err := vm.Mkdir(background, "/tmp/site"); err != nil {
		t.Fatal(err)
	}
	if err := vm.WriteFile("/tmp/site/index.html", []byte("served from inside")); err != nil {
		t.Fatal(err)
	}
	process, err := vm.Start(background, "cd /tmp/site && exec python3 -u -m http.server --bind 127.0.0.1 8000")
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	<-process.Chunks() // "Serving HTTP on …"
	transport := &http.Transport{DialContext: vm.Dial}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://localhost:8000/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "served from inside" {
		t.Errorf("%q: %v", body, err)
	}
}

func TestDiallingWhatIsNotThereIsAnError(t *testing.T) {
	vm := create(t, nil)
	for _, address := range []string{"127.0.0.1:9", "example.test:80", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000"} {
		if conn, err := vm.Dial(background, "tcp", address); err == nil {
			conn.Close()
			t.Errorf("%s is there", address)
		}
	}
	if _, err := vm.Dial(background, "udp", "127.0.0.1:53"); err == nil {
		t.Error("UDP is there")
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := vm.Dial(ctx, "tcp", "127.0.0.1:9"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestAPublishedPortHasItsRealNumber(t *testing.T) {
	vm := listening(t, &sandbox.Config{Network: sandbox.NetworkConfig{Publish: []string{"0:7000"}}})
	ports, err := vm.Ports(background)
	if err != nil || len(ports) != 1 || ports[0].Port == 0 || ports[0].Inside != 7000 {
		t.Fatalf("%+v: %v", ports, err)
	}
	conn, err := net.Dial("tcp", ports[0].HostPort())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "x\n")
	answer := make([]byte, 2)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "X\n" {
		t.Errorf("%q: %v", answer, err)
	}
	entry, err := state.NewStateManager().Get(vm.ID())
	if err != nil || len(entry.Ports) != 1 || entry.Ports[0] != ports[0] {
		t.Errorf("the registry has %+v: %v", entry.Ports, err)
	}
}

func TestTheNetworkCanBeChangedLater(t *testing.T) {
	vm := create(t, &sandbox.Config{Settings: loopback.Origin(t, echo)})
	const get = `curl -s -o /dev/null -w '%{http_code}' http://api.test/`
	if result, err := vm.Exec(background, get); err != nil || result.ExitCode == 0 && result.Stdout == "200" {
		t.Fatalf("%+v: %v", result, err)
	}
	if err := vm.UpdateNetwork(background, map[string]interface{}{"allowed_hosts": []string{"api.test"}}); err != nil {
		t.Fatal(err)
	}
	if got := run(t, vm, get); got != "200" {
		t.Errorf("%q", got)
	}
	err := vm.UpdateNetwork(background, map[string]interface{}{"alowed_hosts": []string{}})
	if !errors.Is(err, sandbox.ErrConfig) {
		t.Errorf("a misspelt setting: %v", err)
	}
}
