package sandbox_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/example/sandbox"
	"github.com/example/sandbox/client"
	"github.com/example/sandbox/state"
)

func TestAContextThatEndsKillsTheCommand(t *testing.T) {
	vm := create(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	process, err := vm.ExecStream(ctx, "echo $$; exec sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string((<-process.Chunks()).Data))
	cancel()
	if _, err := process.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait says %v", err)
	}
	for {
		result, err := vm.Exec(context.Background(), "kill -0 "+pid)
		if err != nil {
			t.Fatal(err)
		}
		if result.ExitCode != 0 {
			return
		}
	}
}

func TestErrorsAreValuesThatErrorsIsFinds(t *testing.T) {
	vm := create(t, nil)
	ctx := context.Background()
	if _, err := vm.ReadFile("/tmp/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := vm.Exec(ctx, "", sandbox.WithArgs("no-such-program")); !errors.Is(err, sandbox.ErrCommand) {
		t.Errorf("a missing program: %v", err)
	}
	var refusal *sandbox.Error
	_, err := vm.Exec(ctx, "", sandbox.WithArgs("no-such-program"))
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Template(), "{name}") || refusal.Values()["name"] != "no-such-program" {
		t.Errorf("%v can not be translated", err)
	}
	process, err := vm.Start(ctx, "sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Cancel(); err != nil {
		t.Fatal(err)
	}
	if _, err := process.Wait(); !errors.Is(err, sandbox.ErrCancelled) {
		t.Errorf("a cancelled command: %v", err)
	}
	vm.Close()
	if _, err := vm.Exec(ctx, "true"); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("a closed sandbox: %v", err)
	}
}

func TestEventsComeAndTheChannelClosesWithTheSandbox(t *testing.T) {
	vm := create(t, nil)
	if _, err := vm.Exec(context.Background(), "exit 3"); err != nil {
		t.Fatal(err)
	}
	for event := range vm.Events() {
		if ended, ok := event.(*sandbox.ExecEvent); ok {
			if ended.ExitCode != 3 || ended.Time().IsZero() {
				t.Errorf("the event says %+v", ended)
			}
			break
		}
	}
	vm.Close()
	for range vm.Events() {
	}
}

func TestManyCommandsAtATime(t *testing.T) {
	vm := create(t, nil)
	results := make(chan error)
	for i := 0; i < 50; i++ {
		go func() {
			result, err := vm.Exec(context.Background(), "echo one")
			if err == nil && result.Stdout != "one\n" {
				err = errors.New(result.Stdout)
			}
			results <- err
		}()
	}
	for i := 0; i < 50; i++ {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestALargeFileSurvivesTheWayInAndOut(t *testing.T) {
	vm := create(t, nil)
	content := make([]byte, 10<<20+17)
	for i := range content {
		content[i] = byte(i * i >> 7)
	}
	if err := vm.WriteFile("/tmp/large", content); err != nil {
		t.Fatal(err)
	}
	back, err := vm.ReadFile("/tmp/large")
	if err != nil || string(back) != string(content) {
		t.Errorf("%d bytes came back: %v", len(back), err)
	}
}

func TestARunningSandboxIsListedAttachedToAndKilled(t *testing.T) {
	vm := create(t, nil)
	manager := state.NewStateManager()
	found, err := manager.Get(vm.ID())
	if err != nil || found.Status != "running" || found.PID == 0 || time.Since(found.CreatedAt) > time.Hour {
		t.Fatalf("%+v: %v", found, err)
	}
	if err := vm.WriteFile("/tmp/note", []byte("left here")); err != nil {
		t.Fatal(err)
	}
	attached, err := sandbox.Attach(vm.ID())
	if err != nil {
		t.Fatal(err)
	}
	if note, err := attached.ReadFile("/tmp/note"); string(note) != "left here" {
		t.Errorf("%q: %v", note, err)
	}
	attached.Close()
	if err := manager.Kill(vm.ID()); err != nil {
		t.Fatal(err)
	}
	if found, _ := manager.Get(vm.ID()); found.Status != "stopped" {
		t.Errorf("after the kill it is %s", found.Status)
	}
	if err := manager.Kill("vm-nowhere"); err == nil || !strings.Contains(err.Error(), "vm-nowhere") {
		t.Errorf("killing nothing says %v", err)
	}
}

func TestTheEndOfThisProcessIsTheEndOfTheSandbox(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_DIES") != "" {
		vm, err := client.Create(nil)
		if err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString(vm.ID() + "\n")
		os.Exit(0) // without Close
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestTheEndOfThisProcess")
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_DIES=1")
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for {
		found, err := state.NewStateManager().Get(strings.TrimSpace(string(output)))
		if err != nil {
			t.Fatal(err)
		}
		if found.Status != "running" {
			return
		}
	}
}
