package embed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/example/sandbox/embed"
	"github.com/example/sandbox/internal/loopback"
)

func TestASandboxWithAHookOnNetHTTPsOwnRequests(t *testing.T) {
	ctx := context.Background()
	vm, err := embed.Create(ctx, &embed.Config{
		Image:      "standard",
		Filesystem: embed.FilesystemConfig{Root: t.TempDir()},
		Network: embed.NetworkConfig{
			AllowedHosts: []string{"api.openai.com"},
			Hooks: embed.HTTPHooks{
				OnRequest: func(req *http.Request) (*http.Request, error) {
					log.Printf("Request: %s %s", req.Method, req.URL)
					return req, nil
				},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if result, err := vm.Exec(ctx, "echo hello"); err != nil || result.Stdout != "hello\n" {
		t.Errorf("%+v: %v", result, err)
	}
}

func TestANilConfigIsTheDefault(t *testing.T) {
	if err := os.Chdir(t.TempDir()); err != nil { // the project
		t.Fatal(err)
	}
	vm, err := embed.Create(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	vm.Close()
}

func TestHooksMayReturnWhatNetHTTPAllows(t *testing.T) {
	settings := loopback.Origin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %q", r.Method, r.URL.Path, body)
	})
	var request func(*http.Request) (*http.Request, error)
	var response func(*http.Response) (*http.Response, error)
	vm, err := embed.Create(context.Background(), &embed.Config{
		Filesystem: embed.FilesystemConfig{Root: t.TempDir()}, Settings: settings, Stderr: io.Discard,
		Network: embed.NetworkConfig{
			AllowedHosts: []string{"api.test"},
			Hooks: embed.HTTPHooks{
				OnRequest:  func(r *http.Request) (*http.Request, error) { return request(r) },
				OnResponse: func(r *http.Response) (*http.Response, error) { return response(r) },
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	same := func(r *http.Response) (*http.Response, error) { return r, nil }
	for _, one := range []struct {
		name     string
		request  func(*http.Request) (*http.Request, error)
		response func(*http.Response) (*http.Response, error)
		want     string
	}{
		{"the same", func(r *http.Request) (*http.Request, error) { return r, nil }, same, `200 POST /asked "body"`},
		{"a new one without a body", func(r *http.Request) (*http.Request, error) {
			return http.NewRequest("PUT", "http://api.test/new", nil)
		}, same, `200 PUT /new ""`},
		{"a new one with a body", func(r *http.Request) (*http.Request, error) {
			return http.NewRequest("PUT", "http://api.test/new", strings.NewReader("other"))
		}, same, `200 PUT /new "other"`},
		{"an emptied one", func(r *http.Request) (*http.Request, error) {
			r.Body = nil
			return r, nil
		}, same, `200 POST /asked ""`},
		{"an answer of the hook's own", func(r *http.Request) (*http.Request, error) { return r, nil },
			func(r *http.Response) (*http.Response, error) {
				if r.Request.URL.Path != "/asked" {
					return nil, errors.New(r.Request.URL.Path)
				}
				return &http.Response{StatusCode: 202, Header: http.Header{}}, nil
			}, "202 "},
	} {
		request, response = one.request, one.response
		result, err := vm.Exec(context.Background(), `curl -sS -d body -o /tmp/out -w '%{http_code} ' http://api.test/asked; cat /tmp/out`)
		if err != nil || result.Stdout != one.want {
			t.Errorf("%s: %+v: %v", one.name, result, err)
		}
	}
	request = func(*http.Request) (*http.Request, error) { return &http.Request{}, nil }
	result, err := vm.Exec(context.Background(), `curl -sS -o /dev/null -w '%{http_code}' http://api.test/asked`)
	if err != nil || result.Stdout != "403" {
		t.Errorf("a request without a URL: %+v: %v", result, err)
	}
}
