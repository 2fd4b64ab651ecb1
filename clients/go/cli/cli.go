// Package cli is a command of one's own with a policy baked in.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/example/sandbox"
)

// RunWithConfig runs the `sandbox` command line args ("run", "python", "script.py") under config, and exits with its
// status. Whoever runs the command cannot loosen config: no option is passed on before the command it runs.
func RunWithConfig(config *sandbox.Config, args []string) {
	status, err := Run(config, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
	}
	os.Exit(status)
}

// Run is RunWithConfig for those who go on afterwards: it returns the exit status.
func Run(config *sandbox.Config, args []string) (int, error) {
	if len(args) < 2 || args[0] != "run" {
		return 125, errors.New("usage: run command…")
	}
	baked, err := json.Marshal(config)
	if err != nil {
		return 125, err
	}
	// Through a pipe: a secret must not be in an argument list, an environment or a file.
	read, write, err := os.Pipe()
	if err != nil {
		return 125, err
	}
	command := sandbox.Command()
	argv := append(command[:len(command)-1:len(command)-1], "--config-fd", "3", "run", "--")
	words := args[1:]
	if words[0] == "--" {
		words = words[1:]
	}
	cmd := exec.Command(argv[0], append(argv[1:], words...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{read} // descriptor 3
	err = cmd.Start()
	read.Close()
	if err != nil {
		write.Close()
		return 125, err
	}
	// The terminal sends its signals to both of us; the command decides, we report.
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
	_, err = write.Write(baked)
	write.Close()
	if err := cmd.Wait(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode(), nil
		}
		return 125, err
	}
	return 0, err
}
