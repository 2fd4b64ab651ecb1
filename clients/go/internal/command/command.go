// Package command finds and runs the `sandbox` command.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
)

// Words is the command: $SANDBOX_COMMAND, or `sandbox`. More words can be appended to it.
func Words() []string {
	if words := strings.Fields(os.Getenv("SANDBOX_COMMAND")); len(words) > 0 {
		return words[:len(words):len(words)]
	}
	return []string{"sandbox"}
}

// ErrNotFound is the kind of error for an id that no sandbox has.
var ErrNotFound = errors.New("no such sandbox")

// failure is what the command printed when it failed, and what kind of error that is, if it is known.
type failure struct {
	message string
	kind    error
}

func (f *failure) Error() string { return f.message }
func (f *failure) Unwrap() error { return f.kind }

// AskAbout is Ask with the id of a sandbox as the last argument. errors.Is finds ErrNotFound when there is none.
func AskAbout(ctx context.Context, answer interface{}, id string, arguments ...string) error {
	err := Ask(ctx, answer, append(arguments, "--", id)...)
	var failed *failure
	if errors.As(err, &failed) && !known(ctx, id) {
		failed.kind = ErrNotFound
	}
	return err
}

// known reports whether id is a sandbox's, or the beginning of exactly one.
func known(ctx context.Context, id string) bool {
	var all []struct {
		ID string `json:"id"`
	}
	if Ask(ctx, &all, "list", "--json") != nil {
		return true // it cannot be told, so the message stays all there is
	}
	matching := 0
	for _, one := range all {
		if one.ID == id {
			return true
		}
		if id != "" && (strings.HasPrefix(one.ID, id) || strings.HasPrefix(one.ID, "vm-"+id)) {
			matching++
		}
	}
	return matching == 1
}

// Ask runs the command with arguments and decodes the JSON it prints into answer, unless that is nil. What it prints on
// stderr is the error when it fails.
func Ask(ctx context.Context, answer interface{}, arguments ...string) error {
	argv := append(Words(), arguments...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if message := strings.TrimPrefix(strings.TrimSpace(stderr.String()), "sandbox: "); message != "" {
			return &failure{message: message}
		}
		return err
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(output, answer)
}
