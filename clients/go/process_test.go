package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/example/sandbox"
)

func TestOutputThatNobodyReadsCostsBoundedMemory(t *testing.T) {
	vm := create(t, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	process, err := vm.ExecStream(background, "yes")
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	for i := 0; i < 200; i++ { // meanwhile `yes` could print hundreds of megabytes
		run(t, vm, "true")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("an unread command costs %d bytes", grown)
	}
	if data, err := io.ReadAll(io.LimitReader(process.Stdout(), 8<<20)); err != nil || len(data) != 8<<20 {
		t.Errorf("it goes on when it is read: %d bytes, %v", len(data), err)
	}
}

func TestAllOutputArrivesHoweverLateItIsRead(t *testing.T) {
	vm := create(t, nil)
	run(t, vm, "head -c 20000000 /dev/urandom > /tmp/random")
	process, err := vm.Start(background, "cat /tmp/random; cat /tmp/random >&2")
	if err != nil {
		t.Fatal(err)
	}
	sums := make(chan [32]byte)
	sum := func(r io.Reader) {
		content, err := io.ReadAll(r)
		if err != nil || len(content) != 20000000 {
			t.Errorf("%d bytes: %v", len(content), err)
		}
		sums <- sha256.Sum256(content)
	}
	go sum(process.Stdout())
	go sum(process.Stderr())
	if result, err := process.Wait(); err != nil || result.ExitCode != 0 || result.Stdout != "" {
		t.Errorf("%+v: %v", result, err)
	}
	content, err := vm.ReadFile("/tmp/random")
	if err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(content); <-sums != want || <-sums != want {
		t.Error("other bytes came out")
	}
}

func TestAContextThatEndsWhileNobodyReadsKillsTheCommandAndLeavesNoGoroutine(t *testing.T) {
	vm := create(t, nil)
	leavesNothing(t, func() {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		process, err := vm.ExecStream(ctx, "yes")
		if err != nil {
			t.Fatal(err)
		}
		process.Chunks() // and never read
		eventually(t, "it runs", func() bool { return len(processes(t, vm)) == 1 })
		cancel()
		if _, err := process.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait returned %v", err)
		}
		eventually(t, "it is killed", func() bool { return len(processes(t, vm)) == 0 })
	})
}

func processes(t *testing.T, vm *sandbox.VM) []sandbox.ProcessInfo {
	t.Helper()
	found, err := vm.Processes(background)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestCloseLeavesNoGoroutineAndNoProcess(t *testing.T) {
	leavesNothing(t, func() {
		vm := create(t, nil)
		for i := 0; i < 5; i++ {
			process, err := vm.Start(background, "yes")
			if err != nil {
				t.Fatal(err)
			}
			process.Chunks() // and never read
			ended, err := vm.ExecStream(background, "echo unread")
			if err != nil {
				t.Fatal(err)
			}
			ended.Chunks()
			<-ended.Done()
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
		if err := vm.Close(); err != nil {
			t.Errorf("a second Close returned %v", err)
		}
	})
}

func TestWaitTwiceReturnsTheSameResult(t *testing.T) {
	vm := create(t, nil)
	process, err := vm.Start(background, "echo out; echo err >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 2; i++ {
		result, err := process.Wait()
		if err != nil || result.Stdout != "out\n" || result.Stderr != "err\n" || result.ExitCode != 3 {
			t.Errorf("call %d: %+v: %v", i, result, err)
		}
	}
	process.Close()
	if result, err := process.Wait(); err != nil || result.Stdout != "out\n" {
		t.Errorf("after Close: %+v: %v", result, err)
	}
}

func TestChunksAndWaitShareTheOutput(t *testing.T) {
	vm := create(t, nil)
	process, err := vm.Start(background, "echo first; read line; echo $line")
	if err != nil {
		t.Fatal(err)
	}
	if first := <-process.Chunks(); first.Stream != "stdout" || string(first.Data) != "first\n" {
		t.Errorf("%+v", first)
	}
	if _, err := io.WriteString(process.Stdin(), "second\n"); err != nil {
		t.Fatal(err)
	}
	if result, err := process.Wait(); err != nil || result.Stdout != "second\n" {
		t.Errorf("%+v: %v", result, err)
	}
}

func TestAClosedProcessIsGone(t *testing.T) {
	vm := create(t, nil)
	process, err := vm.Start(background, "yes")
	if err != nil {
		t.Fatal(err)
	}
	process.Close()
	process.Close()
	if left := processes(t, vm); len(left) != 0 {
		t.Errorf("%+v", left)
	}
	if _, err := process.Stdout().Read(make([]byte, 1)); !errors.Is(err, sandbox.ErrCancelled) {
		t.Errorf("a read returned %v", err)
	}
	if err := process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal returned %v", err)
	}
}

func TestOutputGoesToWritersAsItComes(t *testing.T) {
	vm := create(t, nil)
	read, write := io.Pipe()
	var stderr bytes.Buffer
	done := make(chan error, 1)
	go func() {
		result, err := vm.Exec(background, "echo one; cat > /dev/null; echo two >&2",
			sandbox.WithStdout(write), sandbox.WithStderr(&stderr), sandbox.WithStdinReader(waitForLine(read)))
		if err == nil && (result.Stdout != "" || result.Stderr != "") {
			err = errors.New("the result holds it as well")
		}
		done <- err
	}()
	if err := <-done; err != nil || stderr.String() != "two\n" {
		t.Errorf("stderr is %q: %v", stderr.String(), err)
	}
}

// waitForLine is empty, but only says so when a line has come from r: the command then waits for us to see its output.
func waitForLine(r io.Reader) io.Reader {
	return readerFunc(func([]byte) (int, error) {
		line := make([]byte, 4)
		if _, err := io.ReadFull(r, line); err != nil || string(line) != "one\n" {
			return 0, errors.New("not the line")
		}
		return 0, io.EOF
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(buffer []byte) (int, error) { return f(buffer) }

func TestAWriterThatFailsEndsTheCommand(t *testing.T) {
	vm := create(t, nil)
	full := errors.New("the disk is full")
	result, err := vm.Exec(background, "yes", sandbox.WithStdout(writerFunc(func([]byte) (int, error) { return 0, full })))
	if !errors.Is(err, full) {
		t.Errorf("%+v: %v", result, err)
	}
	eventually(t, "it is killed", func() bool { return len(processes(t, vm)) == 0 })
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(data []byte) (int, error) { return f(data) }

func TestOutputIsBytes(t *testing.T) {
	vm := create(t, nil)
	result, err := vm.Exec(background, `printf 'a\377\000b'; printf '\376' >&2`)
	if err != nil || result.Stdout != "a\xff\x00b" || result.Stderr != "\xfe" {
		t.Errorf("%q %q: %v", result.Stdout, result.Stderr, err)
	}
}

func TestLargeInputArrivesWhole(t *testing.T) {
	vm := create(t, nil)
	data := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MiB: more than the sandbox queues
	for name, option := range map[string]sandbox.Option{
		"bytes": sandbox.WithStdin(data), "a reader": sandbox.WithStdinReader(bytes.NewReader(data)),
	} {
		process, err := vm.Start(background, "wc -c", option)
		if err != nil {
			t.Fatal(err)
		}
		if result, err := process.Wait(); err != nil || strings.TrimSpace(result.Stdout) != "33554432" {
			t.Errorf("%s: %+v: %v", name, result, err)
		}
	}
}

func TestACheckedCommandThatFailsIsAnErrorWithItsOutput(t *testing.T) {
	vm := create(t, nil)
	_, err := vm.Exec(background, "echo so far; exit 7", sandbox.WithCheck())
	var exit *sandbox.ExitError
	if !errors.As(err, &exit) || exit.Result.ExitCode != 7 || exit.Result.Stdout != "so far\n" {
		t.Errorf("%v", err)
	}
	var result *sandbox.ExecResult
	for limit := 300 * time.Millisecond; limit < time.Minute; limit *= 4 { // a busy machine may not even start a shell in time
		result, err = vm.Exec(background, "echo so far; sleep 1000", sandbox.WithCheck(), sandbox.WithTimeout(limit))
		if result == nil || result.Stdout != "" {
			break
		}
	}
	if !errors.As(err, &exit) || !result.TimedOut || result.Stdout != "so far\n" || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("%+v: %v", result, err)
	}
}

func TestOptionsThatCannotApplyAreErrors(t *testing.T) {
	vm := create(t, nil)
	if _, err := vm.Exec(background, "true", sandbox.WithTTY(24, 80)); err == nil {
		t.Error("Exec took a terminal")
	}
	if _, err := vm.Exec(background, "true", sandbox.WithArgs("false")); err == nil {
		t.Error("Exec took two commands")
	}
	if _, err := vm.Exec(background, "true", sandbox.WithTimeout(-time.Second)); err == nil {
		t.Error("Exec took a negative timeout")
	}
}

func TestAKeptCommandIsFoundAgain(t *testing.T) {
	vm := create(t, nil)
	process, err := vm.Start(background, "echo ready; read line; echo $line; exit 4", sandbox.WithKeep("worker"))
	if err != nil {
		t.Fatal(err)
	}
	if first := <-process.Chunks(); string(first.Data) != "ready\n" {
		t.Errorf("%q", first.Data)
	}
	process.Close() // leaves it
	found := processes(t, vm)
	if len(found) != 1 || found[0].Keep != "worker" || found[0].TTY || found[0].ID == "" || found[0].PID != process.PID ||
		time.Since(found[0].Started) > time.Hour || !strings.Contains(found[0].Command, "read line") {
		t.Fatalf("%+v", found)
	}
	again, err := vm.Connect(background, "worker")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(again, "back\n"); err != nil {
		t.Fatal(err)
	}
	result, err := again.Wait()
	if err != nil || !again.Joined || !strings.HasSuffix(result.Stdout, "back\n") || result.ExitCode != 4 {
		t.Errorf("%+v: %v", result, err)
	}
	if _, err := vm.Connect(background, "nobody"); err == nil {
		t.Error("there is somebody")
	}
}

func TestATerminalHasASize(t *testing.T) {
	vm := create(t, nil)
	process, err := vm.Start(background, `stty size; read line; until [ "$(stty size)" = "30 40" ]; do :; done; stty size`, sandbox.WithTTY(10, 20))
	if err != nil {
		t.Fatal(err)
	}
	first := <-process.Chunks()
	if err := process.Resize(30, 40); err != nil {
		t.Fatal(err)
	}
	io.WriteString(process, "\n")
	result, err := process.Wait()
	if err != nil || !strings.Contains(string(first.Data), "10 20") || !strings.Contains(result.Stdout, "30 40") {
		t.Errorf("%q %+v: %v", first.Data, result, err)
	}
}
