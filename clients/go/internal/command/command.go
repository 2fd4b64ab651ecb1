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
			return errors.New(message)
		}
		return err
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(output, answer)
}
