package sandbox_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/example/sandbox"
)

func TestAServerThatRefusesSaysWhy(t *testing.T) {
	server := sandbox.Server{URL: os.Getenv("SANDBOX_TEST_SERVER"), Token: os.Getenv("SANDBOX_TEST_TOKEN")}
	if server.URL == "" {
		t.Skip("needs a server: tests/clients/test_over_http.py starts one")
	}
	if _, err := sandbox.Connect(background, server.URL, "sbx_wrong", nil); !errors.Is(err, sandbox.ErrDenied) {
		t.Error("a wrong token:", err)
	}
	if _, err := server.Attach(background, "nowhere"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error("no such sandbox:", err)
	}
	if _, err := sandbox.Connect(background, "http://127.0.0.1:1", server.Token, nil); err == nil {
		t.Error("nobody listens there")
	}
	cancelled, cancel := context.WithCancel(background)
	cancel()
	if _, err := server.Create(cancelled, nil); !errors.Is(err, context.Canceled) {
		t.Error("cancelled:", err)
	}
}

func TestASandboxOfAServerIsAttachedToAndLeft(t *testing.T) {
	server := sandbox.Server{URL: os.Getenv("SANDBOX_TEST_SERVER"), Token: os.Getenv("SANDBOX_TEST_TOKEN")}
	if server.URL == "" {
		t.Skip("needs a server: tests/clients/test_over_http.py starts one")
	}
	vm := create(t, nil)
	leavesNothing(t, func() {
		same, err := server.Attach(background, vm.ID())
		if err != nil {
			t.Fatal(err)
		}
		if same.ID() != vm.ID() || run(t, same, "echo there") != "there\n" {
			t.Error("another sandbox")
		}
		if err := same.Close(); err != nil {
			t.Error(err)
		}
	})
	run(t, vm, "true")
}
