// Package cli builds a command that runs programs under a policy of your own.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/example/sandbox"
	"github.com/example/sandbox/internal/command"
)

// notRun is the status when the command could not be run at all.
const notRun = 125

// RunWithConfig runs the `sandbox` command line args ("run", "python", "script.py") under config and exits with its
// status. Whoever runs the program cannot loosen config: all of args is the command to run, and none of it an option.
func RunWithConfig(config *sandbox.Config, args []string) {
	status, err := Run(config, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
	}
	os.Exit(status)
}

// Run is RunWithConfig, but returns the status.
func Run(config *sandbox.Config, args []string) (int, error) {
	return RunContext(context.Background(), config, args)
}

// RunContext is Run with a context. When it ends, the command is killed.
func RunContext(ctx context.Context, config *sandbox.Config, args []string) (int, error) {
	if len(args) < 2 || args[0] != "run" {
		return notRun, errors.New("usage: run command…")
	}
	if config == nil {
		config = &sandbox.Config{}
	}
	settings, err := settings(config)
	if err != nil {
		return notRun, err
	}
	words := args[1:]
	if words[0] == "--" {
		words = words[1:]
	}
	argv := append(append(command.Words(), "--config-fd", "3", "run", "--"), words...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return run(cmd, settings)
}

func settings(config *sandbox.Config) ([]byte, error) {
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &sections); err != nil {
		return nil, err
	}
	if _, ok := sections["hooks"]; ok {
		return nil, errors.New("a command has no hooks: use a policy script, or package sandbox")
	}
	return encoded, nil
}

func run(cmd *exec.Cmd, settings []byte) (int, error) {
	// Through a pipe: a secret must not be in an argument list, an environment or a file.
	read, write, err := os.Pipe()
	if err != nil {
		return notRun, err
	}
	cmd.ExtraFiles = []*os.File{read} // descriptor 3
	err = cmd.Start()
	read.Close()
	if err != nil {
		write.Close()
		return notRun, err
	}
	// The terminal sends these to both of us: the command decides, and we report its status.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(signals)
	_, wrote := write.Write(settings)
	write.Close()
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil // as a shell reports it
		}
		return exit.ExitCode(), nil
	case err != nil:
		return notRun, err
	}
	return 0, wrote
}
