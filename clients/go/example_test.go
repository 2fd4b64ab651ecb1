package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/example/sandbox"
)

func Example() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	if err := vm.WriteFile("/tmp/hello.sh", []byte("echo Hello from the sandbox!")); err != nil {
		log.Fatal(err)
	}
	result, err := vm.Exec(ctx, "sh /tmp/hello.sh")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.Stdout)
	// Output: Hello from the sandbox!
}

func ExampleVM_Exec() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // kills the command
	defer cancel()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	result, err := vm.Exec(ctx, "tr a-z A-Z; echo $NAME; pwd",
		sandbox.WithDir("/tmp"),
		sandbox.WithEnv(map[string]string{"NAME": "value"}),
		sandbox.WithStdin([]byte("input\n")))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.Stdout)

	// A command that fails is an error when you ask for it.
	_, err = vm.Exec(ctx, "echo some output; exit 3", sandbox.WithCheck())
	var exit *sandbox.ExitError
	if errors.As(err, &exit) {
		fmt.Printf("status %d after %q\n", exit.Result.ExitCode, exit.Result.Stdout)
	}
	// Output:
	// INPUT
	// value
	// /tmp
	// status 3 after "some output\n"
}

func ExampleWithStdout() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	// Output appears as the command prints it.
	_, err = vm.Exec(ctx, "for i in 1 2 3; do echo line $i; done",
		sandbox.WithStdout(os.Stdout), sandbox.WithStderr(os.Stdout))
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// line 1
	// line 2
	// line 3
}

func ExampleVM_Start() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	process, err := vm.Start(ctx, "while read name; do echo Hello, $name!; done")
	if err != nil {
		log.Fatal(err)
	}
	defer process.Close()
	go func() {
		stdin := process.Stdin()
		defer stdin.Close()
		io.WriteString(stdin, "Ada\nGrace\n")
	}()
	lines := bufio.NewScanner(process.Stdout())
	for lines.Scan() {
		fmt.Println(lines.Text())
	}
	result, err := process.Wait()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("status", result.ExitCode)
	// Output:
	// Hello, Ada!
	// Hello, Grace!
	// status 0
}

func ExampleProcess_Chunks() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	process, err := vm.ExecStream(ctx, "echo result; sleep 0.1; echo warning >&2")
	if err != nil {
		log.Fatal(err)
	}
	for chunk := range process.Chunks() {
		fmt.Printf("%s: %s", chunk.Stream, chunk.Data)
	}
	// Output:
	// stdout: result
	// stderr: warning
}

func ExampleVM_Connect() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	process, err := vm.Start(ctx, "read line; echo received $line", sandbox.WithKeep("worker"))
	if err != nil {
		log.Fatal(err)
	}
	process.Close() // the command keeps running

	running, err := vm.Processes(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("running:", running[0].Keep)

	process, err = vm.Connect(ctx, "worker")
	if err != nil {
		log.Fatal(err)
	}
	io.WriteString(process.Stdin(), "a line\n")
	result, err := process.Wait()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.Stdout)
	// Output:
	// running: worker
	// received a line
}

func ExampleError() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	_, err = vm.ReadFile("/tmp/missing")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	err = vm.WriteFile("/usr/new", nil)
	fmt.Println(errors.Is(err, syscall.EROFS))
	_, err = vm.Exec(ctx, "", sandbox.WithArgs("no-such-program"))
	fmt.Println(errors.Is(err, sandbox.ErrCommand))
	// Output:
	// true
	// true
	// true
}

func ExampleVM_Upload() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	local, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(local)
	if err := os.WriteFile(filepath.Join(local, "data.txt"), []byte("some data\n"), 0o644); err != nil {
		log.Fatal(err)
	}

	if err := vm.Upload(ctx, local, "/tmp/job"); err != nil {
		log.Fatal(err)
	}
	if _, err := vm.Exec(ctx, "wc -w < data.txt > result.txt", sandbox.WithDir("/tmp/job"), sandbox.WithCheck()); err != nil {
		log.Fatal(err)
	}
	if err := vm.Download(ctx, "/tmp/job", local); err != nil {
		log.Fatal(err)
	}
	result, err := os.ReadFile(filepath.Join(local, "result.txt"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.TrimSpace(string(result)))
	// Output: 2
}

func ExampleVM_Dial() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	if err := vm.WriteFile("/tmp/index.html", []byte("served from the sandbox")); err != nil {
		log.Fatal(err)
	}
	server, err := vm.Start(ctx, "exec python3 -u -m http.server --bind 127.0.0.1 8000", sandbox.WithDir("/tmp"))
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	<-server.Chunks() // it says that it is ready

	client := &http.Client{Transport: &http.Transport{DialContext: vm.Dial}}
	resp, err := client.Get("http://localhost:8000/index.html")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(os.Stdout, resp.Body)
	// Output: served from the sandbox
}

func ExampleVM_Changes() {
	ctx := context.Background()
	project, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(project)
	vm, err := sandbox.Create(ctx, &sandbox.Config{
		Filesystem: sandbox.FilesystemConfig{Root: project, Overlay: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	if _, err := vm.Exec(ctx, "echo text > wanted; echo text > unwanted", sandbox.WithCheck()); err != nil {
		log.Fatal(err)
	}
	changes, err := vm.Changes(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range changes {
		fmt.Println(change.Kind, change.Path)
	}
	applied, err := vm.Apply(ctx, []string{"wanted"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("applied", applied.Applied)
	// Output:
	// added unwanted
	// added wanted
	// applied [wanted]
}

func ExampleVM_Extend() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, &sandbox.Config{
		Resources: sandbox.Resources{MemoryMB: 512, Lifetime: time.Hour},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	if err := vm.Extend(ctx, sandbox.Lifetime(3*time.Hour), sandbox.IdleTimeout(10*time.Minute)); err != nil {
		log.Fatal(err)
	}
	stats, err := vm.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.LifetimeLeft.Round(time.Hour))
	// Output: 3h0m0s
}

func ExampleVM_Events() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := vm.Exec(ctx, "exit 3"); err != nil {
		log.Fatal(err)
	}
	vm.Close() // closes the channel
	for event := range vm.Events() {
		switch e := event.(type) {
		case *sandbox.ExecStartEvent:
			fmt.Println("started:", e.Command)
		case *sandbox.ExecEvent:
			fmt.Println("ended:", e.Command, "status", e.ExitCode)
		}
	}
	// Output:
	// started: /bin/sh -c exit 3
	// ended: /bin/sh -c exit 3 status 3
}

func ExampleHTTPHooks() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, &sandbox.Config{
		Network: sandbox.NetworkConfig{
			AllowedHosts: []string{"api.example.com"},
			Hooks: sandbox.HTTPHooks{
				OnRequest: func(req *sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) {
					if strings.HasPrefix(req.URL.Path, "/admin") {
						return nil, sandbox.ErrBlocked
					}
					req.Headers.Set("X-Sandbox", "yes")
					return req, nil
				},
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	result, err := vm.Exec(ctx, "curl -s -o /dev/null -w '%{http_code}' http://api.example.com/admin")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Stdout)
	// Output: 403
}

// Keys stay out of a directory, whichever way a command tries.
func ExampleVFSHooks() {
	noKeys := func(path string) error {
		if strings.HasSuffix(path, ".key") {
			return errors.New("keys stay outside")
		}
		return nil
	}
	vm, err := sandbox.Create(context.Background(), &sandbox.Config{VFS: sandbox.VFSConfig{
		Mounts: map[string]sandbox.Provider{"/workspace": sandbox.NewMemoryProvider()},
		Hooks: sandbox.VFSHooks{
			BeforeOpen:    func(path string, flags int) error { return noKeys(path) },
			BeforeCreate:  func(path string, mode uint32) error { return noKeys(path) },
			BeforeRename:  func(from, to string) error { return noKeys(to) },
			BeforeLink:    func(from, to string) error { return noKeys(to) },
			BeforeSymlink: func(target, link string) error { return noKeys(link) },
			AfterWrite:    func(path string, n int) { log.Printf("%d bytes written to %s", n, path) },
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()
}
