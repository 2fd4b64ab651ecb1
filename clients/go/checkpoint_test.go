package sandbox_test

import (
	"testing"

	"github.com/example/sandbox"
)

func TestNothingRunsInAPausedSandbox(t *testing.T) {
	vm := create(t, nil)
	if err := vm.Pause(background); err != nil {
		t.Fatal(err)
	}
	if _, err := vm.Exec(background, "true"); err == nil {
		t.Error("a command ran")
	}
	if err := vm.Resume(background); err != nil {
		t.Fatal(err)
	}
	run(t, vm, "true")
}

func TestAForkHasTheFilesAndKeepsItsOwn(t *testing.T) {
	vm := create(t, nil)
	run(t, vm, "echo kept > ~/note")
	ids, err := vm.Fork(background, 2)
	if err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	fork, err := sandbox.Attach(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	defer fork.Close()
	if got := run(t, fork, "cat ~/note; echo other > ~/note"); got != "kept\n" {
		t.Errorf("%q", got)
	}
	if got := run(t, vm, "cat ~/note"); got != "kept\n" {
		t.Errorf("%q", got)
	}
}

func TestACheckpointOutlivesItsSandbox(t *testing.T) {
	needsOwnProgram(t) // whose registry is this test's own
	t.Setenv("SANDBOX_HOME", t.TempDir())
	vm := create(t, nil)
	run(t, vm, "echo kept > ~/note")
	saved, err := vm.Checkpoint(background, "ready")
	if err != nil || saved.Name != "ready" || saved.Sandbox != vm.ID() || saved.Saves != "files" {
		t.Fatalf("%+v %v", saved, err)
	}
	vm.Close()
	restored, err := sandbox.Restore(background, "ready", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	if got := run(t, restored, "cat ~/note"); got != "kept\n" {
		t.Errorf("%q", got)
	}
}

func TestACheckpointThatIsNotThereIsAnError(t *testing.T) {
	if vm, err := sandbox.Restore(background, "nothing", nil); err == nil {
		vm.Close()
		t.Error("restored")
	}
}
