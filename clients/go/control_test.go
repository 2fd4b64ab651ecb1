package sandbox_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/example/sandbox"
	"github.com/example/sandbox/state"
)

func overlay(t *testing.T) (*sandbox.VM, string) {
	t.Helper()
	project := t.TempDir()
	for name, content := range map[string]string{"kept": "old", "gone": "old"} {
		if err := os.WriteFile(filepath.Join(project, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	vm := create(t, &sandbox.Config{Filesystem: sandbox.FilesystemConfig{Root: project, Overlay: true}})
	run(t, vm, "printf new > kept; rm gone; printf new > added; ln -s /etc/passwd leads-out")
	return vm, project
}

func content(t *testing.T, project, name string) string {
	t.Helper()
	found, err := os.ReadFile(filepath.Join(project, name))
	if err != nil {
		return err.(*os.PathError).Err.Error()
	}
	return string(found)
}

func TestChangesAreReviewedAndApplied(t *testing.T) {
	vm, project := overlay(t)
	changes, err := vm.Changes(background)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, change := range changes {
		kinds[change.Path] = change.Kind
		if change.Path == "leads-out" && (change.Risk == "" || change.After.Target != "/etc/passwd") {
			t.Errorf("%+v", change)
		}
		if change.Path == "kept" && (change.Before.Size != 3 || change.After.Perm() != 0o644) {
			t.Errorf("%+v %+v", change.Before, change.After)
		}
	}
	if want := map[string]string{"kept": "modified", "gone": "deleted", "added": "added", "leads-out": "added"}; !reflect.DeepEqual(kinds, want) {
		t.Errorf("%v", kinds)
	}
	if applied, err := vm.Apply(background, nil); err != nil || len(applied.Applied) != 0 || content(t, project, "kept") != "old" {
		t.Errorf("no paths applied %+v: %v", applied, err)
	}
	if applied, err := vm.Apply(background, []string{"kept"}); err != nil || !reflect.DeepEqual(applied.Applied, []string{"kept"}) {
		t.Errorf("%+v: %v", applied, err)
	}
	if content(t, project, "kept") != "new" || content(t, project, "gone") != "old" {
		t.Error("not what was asked for")
	}
	applied, err := vm.ApplyAll(background)
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(applied.Applied)
	if !reflect.DeepEqual(applied.Applied, []string{"added", "gone"}) ||
		len(applied.Refused) != 1 || applied.Refused[0].Path != "leads-out" || applied.Refused[0].Reason == "" {
		t.Errorf("%+v", applied)
	}
}

func TestAConflictIsOverwrittenOnlyWhenAskedFor(t *testing.T) {
	vm, project := overlay(t)
	if err := os.WriteFile(filepath.Join(project, "kept"), []byte("meanwhile"), 0o644); err != nil {
		t.Fatal(err)
	}
	if applied, err := vm.Apply(background, []string{"kept"}); err != nil || len(applied.Refused) != 1 {
		t.Errorf("%+v: %v", applied, err)
	}
	if got := content(t, project, "kept"); got != "meanwhile" {
		t.Errorf("%q", got)
	}
	if _, err := vm.Apply(background, []string{"kept"}, sandbox.Overwrite()); err != nil {
		t.Fatal(err)
	}
	if got := content(t, project, "kept"); got != "new" {
		t.Errorf("%q", got)
	}
}

func TestDiscardEndsTheSandboxAndItsChanges(t *testing.T) {
	vm, project := overlay(t)
	if err := vm.Discard(background); err != nil {
		t.Fatal(err)
	}
	if _, err := vm.Exec(background, "true"); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("%v", err)
	}
	if got := content(t, project, "kept"); got != "old" {
		t.Errorf("%q", got)
	}
	if err := vm.Close(); err != nil {
		t.Error(err)
	}
}

func TestStatsShowWhatIsUsed(t *testing.T) {
	vm := create(t, &sandbox.Config{Resources: sandbox.Resources{Lifetime: time.Hour}})
	process, err := vm.Start(background, "while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	eventually(t, "it uses the processor", func() bool {
		stats, err := vm.Stats(background)
		if err != nil {
			t.Fatal(err)
		}
		return stats.Processes > 0 && stats.MemoryBytes > 0 && stats.CPUTime > 0 &&
			stats.LifetimeLeft > 50*time.Minute && stats.LifetimeLeft <= time.Hour
	})
}

func TestALifetimeEndsTheSandboxAndCanBeExtended(t *testing.T) {
	vm := create(t, &sandbox.Config{Resources: sandbox.Resources{Lifetime: time.Hour}})
	if err := vm.Extend(background, sandbox.Lifetime(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if stats, err := vm.Stats(background); err != nil || stats.LifetimeLeft < time.Hour {
		t.Errorf("%+v: %v", stats, err)
	}
	if err := vm.Extend(background, sandbox.Lifetime(sandbox.NoLimit)); err != nil {
		t.Fatal(err)
	}
	if stats, err := vm.Stats(background); err != nil || stats.LifetimeLeft != 0 {
		t.Errorf("%+v: %v", stats, err)
	}
	if err := vm.Extend(background, sandbox.IdleTimeout(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sandbox has ended", func() bool {
		found, err := state.NewStateManager().Get(vm.ID())
		return err == nil && found.Status == "stopped"
	})
	if _, err := vm.Exec(background, "true"); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestEventsFollowACommandFromItsStartToItsEnd(t *testing.T) {
	vm := create(t, nil)
	before := time.Now()
	run(t, vm, "true")
	var started *sandbox.ExecStartEvent
	for event := range vm.Events() {
		switch e := event.(type) {
		case *sandbox.ExecStartEvent:
			started = e
		case *sandbox.ExecEvent:
			if started == nil || started.ID == "" || started.ID != e.ID || started.PID == 0 ||
				!strings.Contains(started.Command, "true") || !strings.Contains(e.Command, "true") {
				t.Fatalf("%+v %+v", started, e)
			}
			if e.Time().Before(started.Time()) || started.Time().Before(before.Truncate(time.Microsecond)) ||
				e.Time().After(time.Now()) {
				t.Errorf("started at %v, ended at %v", started.Time(), e.Time())
			}
			return
		}
	}
}

func TestAttachTakesAShortIDAndKnowsTheSandbox(t *testing.T) {
	vm := create(t, &sandbox.Config{Env: map[string]string{"GREETING": "hello"}})
	for _, id := range []string{vm.ID(), strings.TrimPrefix(vm.ID(), "vm-")[:6]} {
		attached, err := sandbox.Attach(id)
		if err != nil {
			t.Fatal(err)
		}
		if attached.ID() != vm.ID() || attached.Engine() != vm.Engine() || attached.Engine() == "" ||
			attached.Directory() != vm.Directory() || attached.Directory() == "" || attached.Env()["GREETING"] != "hello" {
			t.Errorf("%s %s %s %v", attached.ID(), attached.Engine(), attached.Directory(), attached.Env())
		}
		if err := attached.Close(); err != nil {
			t.Error(err)
		}
	}
	run(t, vm, "true") // it is still there
	attached, err := sandbox.Attach(vm.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := attached.Shutdown(background); err != nil {
		t.Error(err)
	}
	if found, err := state.NewStateManager().Get(vm.ID()); err != nil || found.Status != "stopped" {
		t.Errorf("%+v: %v", found, err)
	}
	if _, err := sandbox.Attach(vm.ID()); !errors.Is(err, sandbox.ErrClosed) || strings.Contains(err.Error(), "/proc") {
		t.Errorf("%v", err)
	}
	if _, err := sandbox.Attach("vm-nowhere"); !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "vm-nowhere") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsNotThereIsErrNotFound(t *testing.T) {
	vm := create(t, nil)
	manager := state.NewStateManager()
	for name, err := range map[string]error{
		"Attach":  second(sandbox.Attach("vm-nowhere")),
		"Get":     second(manager.Get("vm-nowhere")),
		"Kill":    manager.Kill("vm-nowhere"),
		"Remove":  manager.Remove("vm-nowhere"),
		"Connect": second(vm.Connect(background, "no-such-command")),
		"Answer":  vm.Answer(background, 99, sandbox.Deny),
	} {
		if !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%s returned %v", name, err)
		}
	}
	if err := manager.Remove(vm.ID()); err == nil || errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a sandbox that runs cannot be removed, but it is there: %v", err)
	}
}

func TestShutdownWaitsForCommands(t *testing.T) {
	vm := create(t, nil)
	process, err := vm.Start(background, "echo ready; read line; echo done > finished")
	if err != nil {
		t.Fatal(err)
	}
	<-process.Chunks()
	ended := make(chan error)
	go func() { ended <- vm.Shutdown(background) }()
	eventually(t, "new commands are refused", func() bool {
		_, err := vm.Exec(background, "true")
		return errors.Is(err, sandbox.ErrClosed)
	})
	io.WriteString(process, "\n")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if result, err := process.Wait(); err != nil || result.ExitCode != 0 {
		t.Errorf("%+v: %v", result, err)
	}
	if got := content(t, vm.Directory(), "finished"); got != "done\n" {
		t.Errorf("%q", got)
	}
}

func TestAnOwnerThatHangsIsKilledWhenTheContextEnds(t *testing.T) {
	needsOwnProgram(t)
	leavesNothing(t, func() {
		vm := create(t, nil)
		found, err := state.NewStateManager().Get(vm.ID())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(found.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
		defer cancel()
		if _, err := vm.Exec(ctx, "true"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Exec returned %v", err)
		}
		if err := vm.WriteFileContext(ctx, "/tmp/large", make([]byte, 64<<20), 0o644); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WriteFile returned %v", err)
		}
		if err := vm.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown returned %v", err)
		}
	})
}

func TestCreateEndsWithItsContextAndLeavesNothing(t *testing.T) {
	leavesNothing(t, func() {
		ctx, cancel := context.WithCancel(background)
		cancel()
		if vm, err := start(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: %v", vm, err)
		}
		if _, err := start(background, &sandbox.Config{PolicyScript: "def ("}); !errors.Is(err, sandbox.ErrConfig) {
			t.Errorf("%v", err)
		}
	})
}

func TestEveryMethodEndsWithItsContext(t *testing.T) {
	vm := create(t, nil)
	ctx, cancel := context.WithCancel(background)
	cancel()
	server := sandbox.Server{URL: "http://127.0.0.1:1", Token: "token"}
	tested := map[string]bool{}
	for _, of := range []interface{}{vm, vm.Desktop(), state.NewStateManager(), server} {
		for name, err := range calledWith(ctx, of) {
			tested[name] = true
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s returned %v", name, err)
			}
		}
	}
	for name, err := range map[string]error{
		"Create":        second(sandbox.Create(ctx, nil)),
		"Connect":       second(sandbox.Connect(ctx, "http://127.0.0.1:1", "token", nil)),
		"Restore":       second(sandbox.Restore(ctx, "x", nil)),
		"AttachContext": second(sandbox.AttachContext(ctx, vm.ID())),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("sandbox.%s returned %v", name, err)
		}
	}
	for _, name := range []string{"*sandbox.VM.Exec", "*sandbox.VM.Upload", "*state.StateManager.PruneContext", "sandbox.Server.Attach"} {
		if !tested[name] {
			t.Errorf("%s was not called: %v", name, tested)
		}
	}
	run(t, vm, `test -z "$(ls -A)"`)
}

// calledWith calls every method that takes a context, with a context and plausible further arguments, and returns their errors.
func calledWith(ctx context.Context, of interface{}) map[string]error {
	errs := map[string]error{}
	value := reflect.ValueOf(of)
	for i := 0; i < value.NumMethod(); i++ {
		method, name := value.Method(i), value.Type().String()+"."+value.Type().Method(i).Name
		takesContext := method.Type().NumIn() > 0 && method.Type().In(0) == reflect.TypeOf((*context.Context)(nil)).Elem()
		switch {
		case !takesContext:
			continue
		case strings.HasSuffix(name, ".Shutdown"): // it ends the sandbox in any case
			continue
		case strings.HasSuffix(name, ".Dial"): // it looks at its arguments first; network_test.go has it
			continue
		}
		results := method.Call(plausible(ctx, method.Type()))
		err, _ := results[len(results)-1].Interface().(error)
		errs[name] = err
	}
	return errs
}

// plausible returns arguments for a function: the context, "." for text, empty values for the rest.
func plausible(ctx context.Context, function reflect.Type) []reflect.Value {
	arguments := []reflect.Value{reflect.ValueOf(ctx)}
	for i := 1; i < function.NumIn(); i++ {
		switch kind := function.In(i); {
		case function.IsVariadic() && i == function.NumIn()-1:
		case kind.Kind() == reflect.String:
			arguments = append(arguments, reflect.ValueOf(".").Convert(kind))
		case kind == reflect.TypeOf((*io.Reader)(nil)).Elem():
			arguments = append(arguments, reflect.ValueOf(strings.NewReader("x")))
		case kind == reflect.TypeOf((*io.Writer)(nil)).Elem():
			arguments = append(arguments, reflect.ValueOf(io.Discard))
		default:
			arguments = append(arguments, reflect.Zero(kind))
		}
	}
	return arguments
}
