package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/example/sandbox"
)

var background = context.Background()

// source is the directory of this package. The tests run in an empty one, which is then the project of sandboxes.
var source string

func TestMain(m *testing.M) {
	source, _ = os.Getwd()
	project, err := os.MkdirTemp("", "sandbox-go-")
	if err == nil {
		err = os.Chdir(project)
	}
	if err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(project)
	os.Exit(status)
}

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
	vm, err := start(background, &own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vm.Close() })
	return vm
}

// start creates a sandbox: by a program of its own, or over HTTP on the server that SANDBOX_TEST_SERVER names.
func start(ctx context.Context, config *sandbox.Config) (*sandbox.VM, error) {
	if server := os.Getenv("SANDBOX_TEST_SERVER"); server != "" {
		return sandbox.Connect(ctx, server, os.Getenv("SANDBOX_TEST_TOKEN"), config)
	}
	return sandbox.Create(ctx, config)
}

// needsOwnProgram skips a test that is about the program which owns a sandbox: a server owns many.
func needsOwnProgram(t *testing.T) {
	t.Helper()
	if os.Getenv("SANDBOX_TEST_SERVER") != "" {
		t.Skip("about a program of its own")
	}
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

func needsFUSE(t *testing.T) {
	t.Helper()
	file, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs /dev/fuse: ", err)
	}
	file.Close()
}
