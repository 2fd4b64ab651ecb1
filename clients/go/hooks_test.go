package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/example/sandbox"
	"github.com/example/sandbox/internal/loopback"
)

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Secret", "of the server")
	fmt.Fprintf(w, "%s %s %q %s", r.Method, r.URL.Path, body, r.Header.Get("X-Added"))
}

const post = `curl -sS -d 'the whole body' http://api.test/asked`

func withHooks(t *testing.T, hooks sandbox.HTTPHooks) *sandbox.VM {
	return create(t, &sandbox.Config{
		Settings: loopback.Origin(t, echo), Stderr: io.Discard,
		Network: sandbox.NetworkConfig{AllowedHosts: []string{"api.test"}, Hooks: hooks},
	})
}

func TestAHookThatEmptiesABodyEmptiesIt(t *testing.T) {
	for name, empty := range map[string][]byte{"nil": nil, "no bytes": {}} {
		empty := empty
		t.Run(name, func(t *testing.T) {
			request := withHooks(t, sandbox.HTTPHooks{
				OnRequest: func(req *sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) {
					if string(req.Body) != "the whole body" {
						t.Errorf("the hook sees %q", req.Body)
					}
					req.Body = empty
					return req, nil
				},
			})
			if got := run(t, request, post); got != `POST /asked "" ` {
				t.Errorf("the server got %q", got)
			}
			response := withHooks(t, sandbox.HTTPHooks{
				OnResponse: func(resp *sandbox.HTTPResponse, req *sandbox.HTTPRequest) (*sandbox.HTTPResponse, error) {
					resp.Body = empty
					return resp, nil
				},
			})
			if got := run(t, response, post); got != "" {
				t.Errorf("the sandbox got %q", got)
			}
		})
	}
}

func TestAHookChangesWhatItChangesAndNothingElse(t *testing.T) {
	vm := withHooks(t, sandbox.HTTPHooks{
		OnRequest: func(req *sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) {
			req.Headers.Set("X-Added", "by a hook")
			req.URL.Path = "/changed"
			return req, nil
		},
		OnResponse: func(resp *sandbox.HTTPResponse, req *sandbox.HTTPRequest) (*sandbox.HTTPResponse, error) {
			resp.StatusCode = 201
			resp.Headers.Del("X-Secret")
			return resp, nil
		},
	})
	got := run(t, vm, strings.Replace(post, "-sS", "-sSi", 1))
	if !strings.Contains(got, " 201 ") || !strings.HasSuffix(got, `POST /changed "the whole body" by a hook`) {
		t.Errorf("%q", got)
	}
	if strings.Contains(got, "of the server") {
		t.Errorf("the header is still there: %q", got)
	}
}

func TestBodiesThatHooksDoNotSeeStayUnlessTheyAreReplaced(t *testing.T) {
	for name, replacement := range map[string][]byte{"stays": nil, "replaced": {}} {
		vm := withHooks(t, sandbox.HTTPHooks{
			WithoutBodies: true,
			OnRequest: func(req *sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) {
				if req.Body != nil {
					t.Errorf("the hook sees %q", req.Body)
				}
				req.Body = replacement
				return req, nil
			},
		})
		want := map[string]string{"stays": `POST /asked "the whole body" `, "replaced": `POST /asked "" `}[name]
		if got := run(t, vm, post); got != want {
			t.Errorf("%s: the server got %q", name, got)
		}
	}
}

func TestAHookThatDoesNotAgreeRefuses(t *testing.T) {
	for name, hook := range map[string]func(*sandbox.HTTPRequest) (*sandbox.HTTPRequest, error){
		"an error":       func(*sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) { return nil, errors.New("not today") },
		"an empty error": func(*sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) { return nil, errors.New("") },
		"nil":            func(*sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) { return nil, nil },
		"no URL":         func(r *sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) { r.URL = nil; return r, nil },
		"nothing":        func(*sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) { return &sandbox.HTTPRequest{}, nil },
		"a panic":        func(*sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) { panic("out of range") },
	} {
		var log bytes.Buffer
		vm := create(t, &sandbox.Config{
			Settings: loopback.Origin(t, echo), Stderr: &log,
			Network: sandbox.NetworkConfig{AllowedHosts: []string{"api.test"}, Hooks: sandbox.HTTPHooks{OnRequest: hook}},
		})
		if got := run(t, vm, post+" -o /dev/null -w '%{http_code}'"); got != "403" {
			t.Errorf("%s: %q", name, got)
		}
		vm.Close()
		if name == "a panic" && !strings.Contains(log.String(), "out of range") {
			t.Errorf("nobody is told of the panic: %q", log.String())
		}
	}
}

func TestEveryFileHookOfTheDocumentationIsThere(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(source, "../../docs/vfs.md"))
	if err != nil {
		t.Fatal(err)
	}
	kind := reflect.TypeOf(sandbox.VFSHooks{})
	operations := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z, ]+) \| (path|old|target)[^|]*\|[^|]*\|$`).FindAllStringSubmatch(string(page), -1) {
		for _, operation := range strings.Split(row[1], ", ") {
			operations++
			for _, when := range []string{"Before", "After"} {
				if _, ok := kind.FieldByName(when + strings.ToUpper(operation[:1]) + operation[1:]); !ok {
					t.Errorf("there is no %s hook for %s", when, operation)
				}
			}
		}
	}
	if operations != 20 || kind.NumField() != 2*operations {
		t.Errorf("%d operations are documented, and there are %d hooks", operations, kind.NumField())
	}
}

func TestFileHooksGuardEveryWayToAName(t *testing.T) {
	needsFUSE(t)
	key := func(path string) error {
		if strings.HasSuffix(path, ".key") {
			return sandbox.ErrBlocked
		}
		return nil
	}
	second := func(_, path string) error { return key(path) }
	seen := make(chan string, 64)
	vm := create(t, &sandbox.Config{VFS: sandbox.VFSConfig{
		Mounts: map[string]sandbox.Provider{"/workspace": sandbox.NewMemoryProvider()},
		Hooks: sandbox.VFSHooks{
			BeforeOpen:    func(path string, flags int) error { return key(path) },
			BeforeCreate:  func(path string, mode uint32) error { return key(path) },
			BeforeMknod:   func(path string, mode uint32) error { return key(path) },
			BeforeMkdir:   func(path string, mode uint32) error { return key(path) },
			BeforeRename:  second,
			BeforeLink:    second,
			BeforeSymlink: second,
			BeforeWrite: func(path string, size int, offset int64) error {
				if size > 100 {
					return errors.New("too large")
				}
				return nil
			},
			BeforeSetattr: func(path string, changes sandbox.AttrChanges) error {
				if changes.Mode != nil && *changes.Mode&0o111 != 0 {
					return errors.New("nothing here is a program")
				}
				return nil
			},
			AfterWrite:  func(path string, n int) { seen <- fmt.Sprint("write ", path, " ", n) },
			AfterRename: func(from, to string) { seen <- "rename " + from + " " + to },
		},
	}})
	for _, attempt := range []string{
		"echo x > a.key", "mkdir a.key", "mkfifo a.key", "mv plain a.key", "ln plain a.key", "ln -s plain a.key",
		"head -c 1000 /dev/zero > large", "chmod +x plain",
	} {
		result, err := vm.Exec(background, "cd /workspace && touch plain && "+attempt)
		if err != nil || result.ExitCode == 0 {
			t.Errorf("%s: %+v: %v", attempt, result, err)
		}
	}
	run(t, vm, "cd /workspace && echo four > plain && mv plain other")
	for _, want := range []string{"write /workspace/plain 5", "rename /workspace/plain /workspace/other"} {
		if got := <-seen; got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}

func TestHooksThatWouldNeverBeCalledAreErrors(t *testing.T) {
	guard := func(path string, flags int) error { return sandbox.ErrBlocked }
	for name, config := range map[string]*sandbox.Config{
		"file hooks without mounts": {VFS: sandbox.VFSConfig{Hooks: sandbox.VFSHooks{BeforeOpen: guard}}},
		"hooks among the settings":  {Settings: map[string]interface{}{"hooks": map[string]interface{}{"before_opn": struct{}{}}}},
		"a provider that is nil":    {VFS: sandbox.VFSConfig{Mounts: map[string]sandbox.Provider{"/x": nil}}},
		"a contradiction":           {Network: sandbox.NetworkConfig{BlockPrivateIPs: true, AllowPrivateIPs: true}},
		"no such setting":           {Settings: map[string]interface{}{"netwrk": map[string]interface{}{}}},
	} {
		vm, err := start(background, config)
		if !errors.Is(err, sandbox.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if vm != nil {
			vm.Close()
		}
	}
}
