package cli_test

import (
	"context"
	"errors"
	"testing"

	"github.com/example/sandbox"
	"github.com/example/sandbox/cli"
)

func TestItReturnsTheStatusOfTheCommand(t *testing.T) {
	config := &sandbox.Config{Filesystem: sandbox.FilesystemConfig{Root: t.TempDir()}}
	for want, args := range map[int][]string{
		0:   {"run", "true"},
		3:   {"run", "--", "sh", "-c", "exit 3"},
		125: {"list"},
		127: {"run", "--read-only"}, // a command of that name, never an option
	} {
		if status, _ := cli.Run(config, args); status != want {
			t.Errorf("%v: status %d", args, status)
		}
	}
}

func TestHooksAreRefusedNotForgotten(t *testing.T) {
	config := &sandbox.Config{}
	config.Network.Hooks.OnRequest = func(*sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) { return nil, nil }
	if status, err := cli.Run(config, []string{"run", "true"}); err == nil {
		t.Errorf("status %d", status)
	}
}

func TestItEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if status, err := cli.RunContext(ctx, nil, []string{"run", "sleep", "1000"}); !errors.Is(err, context.Canceled) {
		t.Errorf("status %d: %v", status, err)
	}
}
